{{/* What objects of a release are called, and the labels by which its pods are found. */}}
{{- define "confide.name" -}}
{{- if contains "confide" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-confide" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "confide.pods" -}}
app.kubernetes.io/name: confide
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "confide.labels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "confide.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* A container that can do nothing but its work. */}}
{{- define "confide.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The group may read the secrets, which are root's. */}}
{{- define "confide.user" -}}
runAsNonRoot: true
runAsUser: 7733
runAsGroup: 7733
fsGroup: 7733
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "confide.secrets" -}}
- name: secrets
  secret:
    secretName: {{ .Values.secret }}
    defaultMode: 0440
{{- end }}
