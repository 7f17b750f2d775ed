//go:build tools

// Package tools names the modules that Traefik is built with in a changed form, so that go.sum verifies
// what they are made from.
package tools

import (
	_ "github.com/abbot/go-http-auth"
	_ "github.com/go-acme/lego/v5/challenge"
)
