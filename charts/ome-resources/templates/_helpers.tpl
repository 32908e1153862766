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
{{- if $falls }}{{ fail "rollout.waves does not increase: each wave must cover more services than the previous wave, such as [1, \"5%\", \"25%\", \"100%\"]" }}{{ end }}
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
{{- $name := trim .repository }}
{{- if contains "://" $name }}{{ fail (printf "image.repository is %s: leave out the beginning of the URL, https://" $name) }}{{ end }}
{{- if contains "@" $name }}{{ fail (printf "image.repository is %s: write the digest in image.digest" $name) }}{{ end }}
{{- if and (not .image.digest) (regexMatch ":[^/]*$" $name) }}{{ fail (printf "image.repository is %s: write the tag in image.tag" $name) }}{{ end }}
{{- if .image.digest }}{{ .repository }}@{{ .image.digest }}
{{- else }}{{ .repository }}:{{ .image.tag | default .chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The image of the registry sidecar of routers, in the namespaces of services; "" for no sidecar. */ -}}
{{- define "ome.sidecarImage" -}}
{{- if .Values.registry.enabled }}{{ if .Values.registry.image }}{{ .Values.registry.image }}{{ else }}{{ include "ome.image" . }}{{ end }}{{ end }}
{{- end }}

{{- /* The agent's labels have a different name than the operator's, because the operator's Service and PodDisruptionBudget select that name. */ -}}
{{- define "ome.testLabels" -}}
app.kubernetes.io/name: ome-test
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /*
The options of the operator that follow from the values, as a YAML list, for the Deployment and for the command of a process outside
of the cluster (NOTES.txt). Such a process reads neither the chart's ConfigMap nor routers' addresses, and images need not be set for it.
*/ -}}
{{- define "ome.options" -}}
- --metrics-per-service={{ .Values.metrics.perService }}
{{- if .Values.metrics.engines.podMonitor }}
- --scrapes-engines
{{- end }}
- --waves={{ include "ome.waves" . }}
- --bake={{ .Values.rollout.bake }}
- --max-concurrent-services={{ .Values.operator.maxConcurrentServices }}
{{- with .Values.rollout.imagePulls }}
- --image-pulls={{ . }}
{{- end }}
{{- with .Values.rollout.imagePullTimeout }}
- --image-pull-timeout={{ . }}
{{- end }}
- --gang-timeout={{ ternary .Values.placement.timeout 0 .Values.placement.gangs }}
{{- if not .Values.placement.avoidBadNodes }}
- --no-avoid-bad-nodes
{{- end }}
{{- if not .Values.lint.refuse }}
- --no-lint-refuse
{{- end }}
{{- with .Values.preflight.default }}
- --preflight={{ . }}
{{- end }}
{{- if .Values.operator.observe }}
- --observe
{{- end }}
{{- range .Values.operator.observeNamespaces }}
- --observe-namespace={{ . }}
{{- end }}
- --recorder-memory={{ .Values.operator.recorderMiB }}
- --models-per-namespace={{ .Values.modelsPerNamespace }}
{{- if or (not .Values.operator.external) (and .Values.registry.enabled (or .Values.registry.image .Values.image.repository)) }}
- --sidecar-image={{ include "ome.sidecarImage" . }}
{{- end }}
- --benchmark-image={{ .Values.benchmark.image }}
{{- if .Values.benchmark.toolsImage }}
- --tools-image={{ .Values.benchmark.toolsImage }}
{{- else if or (not .Values.operator.external) .Values.agent.image.repository .Values.image.repository }}
- --tools-image={{ include "ome.agentImage" . }}
{{- end }}
{{- if and .Values.registry.enabled (not .Values.operator.external) }}
- --router-watch=5
{{- end }}
{{- if .Values.registry.podsProxy }}
- --router-proxy
{{- end }}
{{- if .Values.networkPolicy.services }}
- --network-policies
{{- end }}
{{- if .Values.keda.enabled }}
- --keda
{{- end }}
{{- with .Values.exposure }}
{{- if ne .kind "none" }}
- --expose={{ .kind }}
- --expose-domain={{ .domain }}
- --ingress-class={{ .ingressClassName }}
- --gateway={{ .gateway }}
{{- range .domains }}
- {{ printf "--expose-other-domain=%s" . | quote }}
{{- end }}
{{- range .annotations }}
- --expose-annotation={{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- range uniq .Values.watchNamespaces }}
- --watch-namespace={{ . }}
{{- end }}
{{- if not .Values.clusterWideKinds }}
- --no-cluster-wide-kinds
{{- end }}
{{- with .Values.operatorClass }}
- --operator-class={{ . }}
{{- end }}
{{- range .Values.image.userPullSecrets }}
- --pull-secret={{ . }}
{{- end }}
{{- if not .Values.rbac.createSecrets }}
- --no-router-keys
{{- end }}
{{- if .Values.agent.enabled }}
- --model-agent
{{- range .Values.agent.roots }}
- --agent-root={{ . }}
{{- end }}
{{- if gt (float64 (.Values.agent.compileCacheGB | default 0)) 0.0 }}
- --compile-caches
{{- end }}
{{- range .Values.agent.pinFrom }}
- --pin-from={{ . }}
{{- end }}
{{- end }}
{{- if not (and .Values.operator.external .Values.wellKnownModels.enabled) }}
- --well-known-models={{ if .Values.wellKnownModels.enabled }}/etc/ome/well-known-models{{ end }}
{{- end }}
{{- if not .Values.operator.leaderElection }}
- --no-leader-election
{{- end }}
{{- with .Values.operator.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The options of a process outside of the cluster, in shell syntax, without those that only repeat a default of the operator. */ -}}
{{- define "ome.flags" -}}
{{- $defaults := list "--log-level=INFO" "--metrics-per-service=100" "--waves=1,5%,25%,100%" "--bake=5m" "--max-concurrent-services=0" "--image-pull-timeout=600" "--gang-timeout=60" "--preflight=Off" "--recorder-memory=16" "--models-per-namespace=100" "--benchmark-image=docker.io/lmsysorg/sglang:v0.5.23" }}
{{- $options := prepend (include "ome.options" . | fromYamlArray) (printf "--log-level=%s" .Values.operator.logLevel) }}
{{- range $options }}
{{- if not (has . $defaults) }} {{ regexMatch "^[-a-zA-Z0-9_=.,:/@%+]+$" . | ternary . (printf "'%s'" (replace "'" "'\\''" .)) }}{{ end }}
{{- end }}
{{- end }}
