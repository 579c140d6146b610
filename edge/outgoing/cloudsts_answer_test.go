package outgoing

import (
	"strings"
	"testing"
	"time"
)

const goodSession = `<?xml version="1.0" encoding="UTF-8"?>
<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <AssumeRoleWithWebIdentityResult>
    <SubjectFromWebIdentityToken>alice</SubjectFromWebIdentityToken>
    <AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/tools/alice</Arn><AssumedRoleId>AROA:alice</AssumedRoleId></AssumedRoleUser>
    <Credentials>
      <SessionToken>AQoDYXdzEE0a8ANXXXXXXXXNO1ewxE5TijQyp+IEXAMPLE==</SessionToken>
      <SecretAccessKey>wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY</SecretAccessKey>
      <Expiration>2030-10-24T23:00:23Z</Expiration>
      <AccessKeyId>ASgeIAIOSFODNN7EXAMPLE</AccessKeyId>
    </Credentials>
  </AssumeRoleWithWebIdentityResult>
  <ResponseMetadata><RequestId>ad4156e9-bce1-11e2-82e6-6b6efEXAMPLE</RequestId></ResponseMetadata>
</AssumeRoleWithWebIdentityResponse>`

// What an answer of a security token service has to be.
func TestSTSAnswer(t *testing.T) {
	got, err := parseSession([]byte(goodSession))
	want := session{"ASgeIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY", "AQoDYXdzEE0a8ANXXXXXXXXNO1ewxE5TijQyp+IEXAMPLE==", time.Date(2030, 10, 24, 23, 0, 23, 0, time.UTC)}
	if err != nil || *got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, change := range map[string][2]string{
		"is missing":            {"<AccessKeyId>ASgeIAIOSFODNN7EXAMPLE</AccessKeyId>", ""},
		"is empty":              {"ASgeIAIOSFODNN7EXAMPLE", ""},
		"is there twice":        {"</Credentials>", "<AccessKeyId>B</AccessKeyId></Credentials>"},
		"a second section":      {"</AssumeRoleWithWebIdentityResult>", "<Credentials><AccessKeyId>B</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult>"},
		"an element in a text":  {"ASgeIAIOSFODNN7EXAMPLE", "A<b/>"},
		"a line break":          {"wJalrXUtnFEMI", "wJalr&#13;&#10;XUtnFEMI"},
		"a blank":               {"AQoDYXdzEE0a8", "AQoD YXdzEE0a8"},
		"a slash":               {"ASgeIAIO", "AS/geIAIO"},
		"no time":               {"2030-10-24T23:00:23Z", "tomorrow"},
		"a document type":       {"<AssumeRoleWithWebIdentityResponse", "<!DOCTYPE a [<!ENTITY b \"c\">]>\n<AssumeRoleWithWebIdentityResponse"},
		"an entity":             {"ASgeIAIOSFODNN7EXAMPLE", "&b;"},
		"another encoding":      {"UTF-8", "ISO-8859-1"},
		"another root":          {"AssumeRoleWithWebIdentityResponse", "AssumeRoleResponse"},
		"a second root":         {"</AssumeRoleWithWebIdentityResponse>", "</AssumeRoleWithWebIdentityResponse><a/>"},
		"text behind it":        {"</AssumeRoleWithWebIdentityResponse>", "</AssumeRoleWithWebIdentityResponse>a"},
		"cut off":               {"</AssumeRoleWithWebIdentityResponse>", ""},
		"a long identifier":     {"ASgeIAIOSFODNN7EXAMPLE", strings.Repeat("A", 129)},
		"a long token":          {"AQoDYXdzEE0a8", strings.Repeat("A", 1<<15)},
		"JSON":                  {goodSession, `{"AccessKeyId":"A"}`},
		"nothing":               {goodSession, ""},
		"deep":                  {"<AccessKeyId>", strings.Repeat("<a>", 10000) + "<AccessKeyId>"},
		"credentials elsewhere": {"AssumeRoleWithWebIdentityResult", "Other"},
	} {
		text := strings.ReplaceAll(goodSession, change[0], change[1])
		if text == goodSession {
			t.Errorf("%s: nothing was changed", name)
		}
		got, err := parseSession([]byte(text))
		if err == nil {
			t.Errorf("%s: taken: %+v", name, got)
		} else if strings.Contains(err.Error(), "wJalr") || strings.Contains(err.Error(), "AQoD") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, want := range map[string]string{
		`<ErrorResponse xmlns="x"><Error><Type>Sender</Type><Code>ExpiredTokenException</Code><Message>m</Message></Error></ErrorResponse>`: "ExpiredTokenException",
		`<ErrorResponse><Error><Code>A</Code><Code>B</Code></Error></ErrorResponse>`:                                                        "",
		`<html>`: "", ``: "", `{}`: "",
	} {
		if got := parseSTSError([]byte(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// FuzzSTSAnswer holds that what is read out of an answer can stand where it will.
func FuzzSTSAnswer(f *testing.F) {
	f.Add([]byte(goodSession))
	f.Add([]byte("<ErrorResponse><Error><Code>A</Code></Error></ErrorResponse>"))
	f.Add([]byte("<a><!-- --><![CDATA[b]]></a>"))
	f.Fuzz(func(t *testing.T, text []byte) {
		parseSTSError(text)
		s, err := parseSession(text)
		if err != nil {
			return
		}
		for _, value := range []string{s.id, s.secret, s.token} {
			if unfit(value) != "" || value == "" || strings.ContainsAny(value, " \t") {
				t.Errorf("%q", value)
			}
		}
	})
}
