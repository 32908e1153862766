{{- define "ome.labels" -}}
app.kubernetes.io/name: ome-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "ome.monitorLabels" -}}
{{ include "ome.labels" . }}
{{- with .Values.metrics.monitorLabels }}
{{ toYaml . }}
{{- end }}
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
{{ include "ome.reference" (dict "image" .Values.image "chart" .Chart) }}
{{- end }}

{{- define "ome.agentImage" -}}
{{ include "ome.reference" (dict "image" .Values.agent.image "chart" .Chart) }}
{{- end }}

{{- /* A digest says which bytes are meant, so it wins over a tag. */ -}}
{{- define "ome.reference" -}}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}
{{- else }}{{ .image.repository }}:{{ .image.tag | default .chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* Beside routers, in the namespaces of services; "" for none. */ -}}
{{- define "ome.sidecarImage" -}}
{{- if .Values.registry.enabled }}{{ .Values.registry.image | default (include "ome.image" .) }}{{ end }}
{{- end }}

{{- /* Not the operator's name: its Service and its budget select that. */ -}}
{{- define "ome.testLabels" -}}
app.kubernetes.io/name: ome-test
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
