// Package ext stands in for a module that Traefik keeps in its own repository only: places where a
// commercial edition hooks in, empty in the open one.
package ext

// HTTP has no extension.
type HTTP struct{}

// Router has no extension.
type Router struct{}
