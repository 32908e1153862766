{{- define "ome.labels" -}}
app.kubernetes.io/name: ome-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "ome.selector" -}}
app.kubernetes.io/name: ome-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Who the operator is for the API server. */ -}}
{{- define "ome.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:ome-operator
{{- end }}

{{- define "ome.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "ome.agentImage" -}}
{{ .Values.agent.image.repository }}:{{ .Values.agent.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Beside routers, in the namespaces of services; "" for none. */ -}}
{{- define "ome.sidecarImage" -}}
{{- if .Values.registry.enabled }}{{ .Values.registry.image | default (include "ome.image" .) }}{{ end }}
{{- end }}
