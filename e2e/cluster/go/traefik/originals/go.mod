module rampway.dev/cluster/traefik-originals

go 1.26.0

require (
	github.com/abbot/go-http-auth v0.4.0
	github.com/go-acme/lego/v5 v5.4.1
)
