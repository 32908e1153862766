{{- /* The name of all objects of the operator. It contains the operator class, so that two releases of different classes share no name. */ -}}
{{- define "ome.name" -}}
ome-operator{{ with .Values.operatorClass }}-{{ . }}{{ end }}
{{- end }}

{{- define "ome.wellKnown" -}}
ome-well-known-models{{ with .Values.operatorClass }}-{{ . }}{{ end }}
{{- end }}

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

{{- /* The namespaces in which services can be. */ -}}
{{- define "ome.monitored" -}}
{{- if .Values.watchNamespaces }}matchNames: {{ uniq .Values.watchNamespaces | toJson }}
{{- else }}any: true
{{- end }}
{{- end }}

{{- define "ome.selector" -}}
app.kubernetes.io/name: ome-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The user name of the operator's ServiceAccount at the API server. */ -}}
{{- define "ome.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "ome.name" . }}
{{- end }}

{{- /* The waves in the format that the operator parses. Each wave ends with more services than the previous wave. */ -}}
{{- define "ome.waves" -}}
{{- $number := 0 }}{{ $share := 0 }}{{ $all := list }}
{{- range .Values.rollout.waves }}
{{- $value := trimSuffix "%" (toString .) | int }}
{{- $falls := ge $share 100 }}
{{- if kindIs "string" . }}{{ $falls = or $falls (le $value $share) }}{{ $share = $value }}
{{- else }}{{ $value = int . }}{{ $falls = or $falls (le $value $number) }}{{ $number = $value }}
{{- end }}
{{- if $falls }}{{ fail "rollout.waves does not rise: write waves that each end with more services than the previous wave, such as [1, \"5%\", \"25%\", \"100%\"]" }}{{ end }}
{{- $all = append $all (kindIs "string" . | ternary . (toString $value)) }}
{{- end }}
{{- join "," $all }}
{{- end }}

{{- define "ome.repository" -}}
{{ required "set image.repository to the repository of your registry that holds the operator's image (README.md says how to build it), or operator.external=true" .Values.image.repository }}
{{- end }}

{{- define "ome.image" -}}
{{ include "ome.reference" (dict "repository" (include "ome.repository" .) "image" .Values.image "chart" .Chart) }}
{{- end }}

{{- /* The agent's image in the same path as the operator's image: REGISTRY/ome-operator, REGISTRY/ome-agent. */ -}}
{{- define "ome.agentRepository" -}}
{{- if .Values.agent.image.repository }}{{ .Values.agent.image.repository }}
{{- else if .Values.image.repository }}{{ list (dir .Values.image.repository) "ome-agent" | join "/" | trimPrefix "./" }}
{{- else }}{{ fail "set agent.image.repository to the repository of your registry that contains the agent's image (docs/models-agent.md describes how to build it)" }}
{{- end }}
{{- end }}

{{- define "ome.agentImage" -}}
{{ include "ome.reference" (dict "repository" (include "ome.agentRepository" .) "image" .Values.agent.image "chart" .Chart) }}
{{- end }}

{{- /* A digest takes precedence over a tag, because it identifies the content of the image. */ -}}
{{- define "ome.reference" -}}
{{- if .image.digest }}{{ .repository }}@{{ .image.digest }}
{{- else }}{{ .repository }}:{{ .image.tag | default .chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The image of the registry sidecar of routers, in the namespaces of services; "" for no sidecar. */ -}}
{{- define "ome.sidecarImage" -}}
{{- if .Values.registry.enabled }}{{ .Values.registry.image | default (include "ome.image" .) }}{{ end }}
{{- end }}

{{- /* The agent's labels have a different name than the operator's, because the operator's Service and PodDisruptionBudget select that name. */ -}}
{{- define "ome.testLabels" -}}
app.kubernetes.io/name: ome-test
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
