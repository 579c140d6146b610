// Package v1beta1 is the resource model of Weir: the Go types of every kind of
// the API group weir.dev, their defaults, and the rules that one object must
// keep on its own.
//
// An object is decoded, then completed by its Default method, then checked by
// its Validate method. Rules between objects (a reference that must exist, a
// claim that two servers may not share) belong to package compile.
//
// The types are the one source: the deep copies, the custom resource
// definitions under crds, the JSON Schemas of Schema, the defaults and the rules of
// fields are made from them and their markers (see rules.go).
//
// +kubebuilder:object:generate=true
// +groupName=weir.dev
package v1beta1

//go:generate go tool controller-gen object paths=.
//go:generate go tool controller-gen crd:crdVersions=v1 paths=. output:crd:dir=crds
//go:generate go run rules_gen.go
