//go:build tools

// Package tools names the commands that are built, so that `go mod tidy` keeps what they need.
//
// k8s.io/kubernetes replaces its staging modules by folders; go.mod gives each its published tag
// instead. To move to another release: set the version of k8s.io/kubernetes and the v0.x of every
// replace line, run `go mod tidy`, and set KUBERNETES in ../../versions.py.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
