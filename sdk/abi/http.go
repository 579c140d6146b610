package abi

// HTTPRequest is an HTTP request to another party, as http_call takes it.
type HTTPRequest struct {
	Method  string // GET when empty
	URL     string
	Headers [][2]string // names and values
	Body    string
	Millis  uint64 // that it may take; 0 for the host's limit
}

// Append appends the record of the request.
func (q *HTTPRequest) Append(b []byte) []byte {
	if q.Method != "" {
		b = AppendString(b, FetchMethod, q.Method)
	}
	b = AppendString(b, FetchURL, q.URL)
	for _, h := range q.Headers {
		b = AppendBytes(b, FetchHeader, line(h))
	}
	b = AppendString(b, FetchBody, q.Body)
	if q.Millis != 0 {
		b = AppendUint(b, FetchTimeout, q.Millis)
	}
	return b
}

// HTTPAnswer is the answer to one.
type HTTPAnswer struct {
	Status  int
	Headers [][2]string // names, in small letters, and values
	Body    []byte
}

// Header returns the first value of a header; the name is in small letters.
func (a *HTTPAnswer) Header(name string) string {
	for _, h := range a.Headers {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}

// Append appends the record of the answer.
func (a *HTTPAnswer) Append(b []byte) []byte {
	b = AppendUint(b, FetchedStatus, uint64(a.Status))
	for _, h := range a.Headers {
		b = AppendBytes(b, FetchedHeader, line(h))
	}
	return AppendBytes(b, FetchedBody, a.Body)
}

// ReadHTTPAnswer reads the record of an answer, in which Body lies.
func ReadHTTPAnswer(record []byte) (a HTTPAnswer) {
	for r := (Reader{B: record}); r.Next(); {
		switch r.Num {
		case FetchedStatus:
			a.Status = int(r.Uint)
		case FetchedHeader:
			a.Headers = append(a.Headers, readLine(r.Data))
		case FetchedBody:
			a.Body = r.Data
		}
	}
	return a
}

// ReadHTTPRequest reads the record of a request. false: it is malformed.
func ReadHTTPRequest(record []byte) (q HTTPRequest, ok bool) {
	r := Reader{B: record}
	for r.Next() {
		switch r.Num {
		case FetchMethod:
			q.Method = string(r.Data)
		case FetchURL:
			q.URL = string(r.Data)
		case FetchHeader:
			q.Headers = append(q.Headers, readLine(r.Data))
		case FetchBody:
			q.Body = string(r.Data)
		case FetchTimeout:
			q.Millis = r.Uint
		}
	}
	return q, !r.Bad
}

func line(h [2]string) []byte {
	return AppendString(AppendString(nil, HeaderName, h[0]), HeaderValue, h[1])
}

func readLine(record []byte) (h [2]string) {
	for r := (Reader{B: record}); r.Next(); {
		switch r.Num {
		case HeaderName:
			h[0] = string(r.Data)
		case HeaderValue:
			h[1] = string(r.Data)
		}
	}
	return h
}
