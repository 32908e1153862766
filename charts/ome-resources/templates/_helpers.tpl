{{- /* Of everything that is the operator's own: two releases of two classes share no name. */ -}}
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

{{- /* Where services are. */ -}}
{{- define "ome.monitored" -}}
{{- if .Values.watchNamespaces }}matchNames: {{ uniq .Values.watchNamespaces | toJson }}
{{- else }}any: true
{{- end }}
{{- end }}

{{- define "ome.selector" -}}
app.kubernetes.io/name: ome-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Who the operator is for the API server. */ -}}
{{- define "ome.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "ome.name" . }}
{{- end }}

{{- /* As the operator reads them; each ends later than the wave before. */ -}}
{{- define "ome.waves" -}}
{{- $number := 0 }}{{ $share := 0 }}{{ $all := list }}
{{- range .Values.rollout.waves }}
{{- $value := trimSuffix "%" (toString .) | int }}
{{- $falls := ge $share 100 }}
{{- if kindIs "string" . }}{{ $falls = or $falls (le $value $share) }}{{ $share = $value }}
{{- else }}{{ $value = int . }}{{ $falls = or $falls (le $value $number) }}{{ $number = $value }}
{{- end }}
{{- if $falls }}{{ fail "rollout.waves does not rise: each wave ends later than the wave before, such as [1, \"5%\", \"25%\", \"100%\"]" }}{{ end }}
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

{{- /* Beside the operator's: REGISTRY/ome-operator, REGISTRY/ome-agent. */ -}}
{{- define "ome.agentRepository" -}}
{{- if .Values.agent.image.repository }}{{ .Values.agent.image.repository }}
{{- else if .Values.image.repository }}{{ list (dir .Values.image.repository) "ome-agent" | join "/" | trimPrefix "./" }}
{{- else }}{{ fail "set agent.image.repository to the repository of your registry that holds the agent's image (docs/models-agent.md says how to build it)" }}
{{- end }}
{{- end }}

{{- define "ome.agentImage" -}}
{{ include "ome.reference" (dict "repository" (include "ome.agentRepository" .) "image" .Values.agent.image "chart" .Chart) }}
{{- end }}

{{- /* A digest says which bytes are meant, so it wins over a tag. */ -}}
{{- define "ome.reference" -}}
{{- if .image.digest }}{{ .repository }}@{{ .image.digest }}
{{- else }}{{ .repository }}:{{ .image.tag | default .chart.AppVersion }}
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
