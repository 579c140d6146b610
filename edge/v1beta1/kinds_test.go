package v1beta1

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestKinds(t *testing.T) {
	kinds := Kinds()
	if !slices.IsSortedFunc(kinds, func(a, b Kind) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the kinds are not sorted by name")
	}
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		o := k.New()
		if have := reflect.TypeOf(o).Elem().Name(); have != k.Name {
			t.Errorf("%s makes a %s", k.Name, have)
		}
		if have := o.GetObjectKind().GroupVersionKind(); have != k.GroupVersionKind() {
			t.Errorf("%s makes a %s", k.Name, have)
		}
		if k.New() == o {
			t.Errorf("%s makes the same object twice", k.Name)
		}
		if gvks, _, err := scheme.ObjectKinds(k.New()); err != nil || len(gvks) != 1 || gvks[0] != k.GroupVersionKind() {
			t.Errorf("%s in a scheme is %v, %v", k.Name, gvks, err)
		}
		list, err := scheme.New(k.GroupVersionKind().GroupVersion().WithKind(k.Name + "List"))
		if err != nil || reflect.TypeOf(list) != reflect.TypeOf(k.NewList()) {
			t.Errorf("the list of %s is %T, %v", k.Name, list, err)
		}
		if _, ok := list.(metav1.ListInterface); !ok {
			t.Errorf("%T has no list metadata", list)
		}
		items := reflect.ValueOf(k.NewList()).Elem().FieldByName("Items")
		if items.Type().Elem() != reflect.TypeOf(o).Elem() {
			t.Errorf("the list of %s holds %s", k.Name, items.Type().Elem())
		}
	}
	if _, ok := KindNamed("MCPRegistry"); ok {
		t.Error("MCPRegistry is a kind")
	}
	kinds[0].Name = "changed"
	if Kinds()[0].Name == "changed" {
		t.Error("the kinds can be changed by a caller")
	}
}

// TestCopiesAreApart: completing a copy leaves the object as it was.
func TestCopiesAreApart(t *testing.T) {
	for _, d := range grafted(t) {
		o, err := object(d.kind, d.value)
		if err != nil {
			t.Fatal(err)
		}
		before, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		c := o.DeepCopyObject().(Object)
		scramble(reflect.ValueOf(c).Elem().FieldByName("Spec"))
		after, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if string(before) != string(after) {
			t.Errorf("%s: changing a copy changed the object:\n%s\n%s", d.name, before, after)
		}
	}
}

// scramble changes every value that v reaches.
func scramble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			scramble(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			scramble(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			scramble(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			e := reflect.New(v.Type().Elem()).Elem()
			e.Set(v.MapIndex(k))
			scramble(e)
			v.SetMapIndex(k, e)
		}
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	}
}
