{{/* Name of the chart, for labels. */}}
{{- define "rampway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of the objects: the release's name, with the chart's name unless it is in it. */}}
{{- define "rampway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "rampway.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "rampway.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the operator's pods; they never change. */}}
{{- define "rampway.selectorLabels" -}}
app.kubernetes.io/name: {{ include "rampway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "rampway.labels" -}}
{{ include "rampway.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* Image reference: digest wins, then tag, then the chart's appVersion; never `latest`. */}}
{{- define "rampway.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Name of the ServiceAccount. */}}
{{- define "rampway.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "rampway.fullname" .) -}}
{{- end -}}

{{/* Name of the Lease. */}}
{{- define "rampway.leaseName" -}}
{{- .Values.leaseName | default (include "rampway.fullname" .) -}}
{{- end -}}

{{/* Comma list of the namespaces served; * is all of them. */}}
{{- define "rampway.namespaces" -}}
{{- if .Values.clusterScope -}}
{{- if .Values.watchNamespaces -}}
{{- fail "clusterScope serves every namespace: leave watchNamespaces empty, or set clusterScope to false" -}}
{{- end -}}
*
{{- else -}}
{{- .Values.watchNamespaces | default (list .Release.Namespace) | join "," -}}
{{- end -}}
{{- end -}}

{{/* What the operator may do in a namespace that it serves. Single verbs; no secrets, no exec. */}}
{{- define "rampway.rules" -}}
- apiGroups: [rampway.dev]
  resources: [inferencedeployments]
  verbs: [get, list, watch, patch]
- apiGroups: [rampway.dev]
  resources: [inferencedeployments/status]
  verbs: [patch]
- apiGroups: [rampway.dev]
  resources: [inferencedeployments/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/* The metrics sources as the operator's settings want them; Secrets and ConfigMaps become files. */}}
{{- define "rampway.prometheus" -}}
{{- $sources := list -}}
{{- range .Values.prometheus -}}
{{- $source := pick . "name" "url" "namespaceLabel" "podLabel" "matchers" -}}
{{- $folder := printf "/etc/rampway/prometheus/%s" .name -}}
{{- if .tokenSecret }}{{ $_ := set $source "tokenFile" (printf "%s/token/%s" $folder .tokenSecret.key) }}{{ end -}}
{{- if .caConfigMap }}{{ $_ := set $source "caFile" (printf "%s/ca/%s" $folder .caConfigMap.key) }}{{ end -}}
{{- $sources = append $sources $source -}}
{{- end -}}
{{- $sources | toJson -}}
{{- end -}}
