package v1beta1

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// exercise takes an object through everything that the package does with one.
func exercise(t *testing.T, o Object) {
	o.Default()
	before, err := json.Marshal(o)
	readable := err == nil // Text that is no JSON, set by a program, cannot be written.
	errs := o.Validate()
	for _, e := range errs {
		if e.Field == "" || e.Error() == "" {
			t.Errorf("an error without a field or a text: %#v", e)
		}
	}
	o.Default()
	if again := o.Validate(); len(again) != len(errs) {
		t.Errorf("%d errors, then %d", len(errs), len(again))
	}
	if after, err := json.Marshal(o); readable && (err != nil || string(after) != string(before)) {
		t.Errorf("Validate or a second Default changed the object:\n%s\n%s\n%v", before, after, err)
	}
	if c := o.DeepCopyObject(); !reflect.DeepEqual(c, o) {
		t.Errorf("a copy differs:\n%v\n%v", o, c)
	}
}

// FuzzManifest reads any JSON as an object of any kind.
func FuzzManifest(f *testing.F) {
	kinds := Kinds()
	for _, d := range good(f) {
		text, err := json.Marshal(d.value)
		if err != nil {
			f.Fatal(err)
		}
		for i, k := range kinds {
			if k.Name == d.kind {
				f.Add(uint8(i), text)
			}
		}
	}
	f.Add(uint8(0), []byte(`{"spec":{"config":null,"limits":{"memory":1e999}}}`))
	f.Add(uint8(13), []byte(`{"spec":{"config":{"compositeTools":[{"steps":[{"dependsOn":[""]},{"id":"a","dependsOn":["a","b"]}]}]}}}`))
	f.Fuzz(func(t *testing.T, kind uint8, text []byte) {
		k := kinds[int(kind)%len(kinds)]
		o := blank(k)
		if json.Unmarshal(text, o) != nil {
			return
		}
		exercise(t, o)
		written, err := json.Marshal(o)
		if err != nil {
			t.Fatalf("write: %v", err)
		}
		again := blank(k)
		if err := json.Unmarshal(written, again); err != nil {
			t.Fatalf("read what was written: %v\n%s", err, written)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(written) {
			t.Errorf("written\n%s\nand again\n%s\n%v", written, twice, err)
		}
	})
}

// blank returns an object of a kind that does not even say which kind it is.
func blank(k Kind) Object { return reflect.New(reflect.TypeOf(k.New()).Elem()).Interface().(Object) }

// FuzzObject fills an object of any kind with any values, those that no
// manifest can hold included.
func FuzzObject(f *testing.F) {
	kinds := Kinds()
	for i := range kinds {
		f.Add(uint8(i), []byte("some bytes to fill the object with"), "text\x00{{.steps.a.output}}\n{\"a\":[1]}\nhttps://a:b@c/?d#e\n-1.5h\ntool\nforEach\na")
	}
	f.Fuzz(func(t *testing.T, kind uint8, shape []byte, words string) {
		o := kinds[int(kind)%len(kinds)].New()
		spec := reflect.ValueOf(o).Elem().FieldByName("Spec")
		(&filler{shape: shape, words: strings.Split(words, "\n")}).fill(spec, 0)
		exercise(t, o)
	})
}

// filler fills values with what bytes and words say.
type filler struct {
	shape []byte
	words []string
	at    int
}

func (f *filler) next() byte {
	if len(f.shape) == 0 {
		return 0
	}
	b := f.shape[f.at%len(f.shape)] + byte(f.at/len(f.shape))
	f.at++
	return b
}

func (f *filler) fill(v reflect.Value, depth int) {
	if f.at > 5000 || depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if f.next()%4 > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() {
			return
		}
		for i := range v.NumField() {
			f.fill(v.Field(i), depth+1)
		}
	case reflect.Slice:
		n := int(f.next() % 4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range int(f.next() % 4) {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(k, depth+1)
			f.fill(e, depth+1)
			v.SetMapIndex(k, e)
		}
	case reflect.String:
		v.SetString(f.words[int(f.next())%len(f.words)])
	case reflect.Bool:
		v.SetBool(f.next()%2 == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(int8(f.next())) << (f.next() % 24))
	}
}
