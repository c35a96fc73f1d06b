{{/* Labels of every object of a component. */}}
{{- define "drayage.labels" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: dray
{{- end }}

{{/* What every pod says of itself: no user root, the seccomp profile of the runtime. */}}
{{- define "drayage.podSecurity" -}}
# Variables with the addresses of other services would be read as configuration.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{/* What every container says of itself. */}}
{{- define "drayage.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{- define "drayage.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Kubernetes accepts the other objects of a release first, and then refuses such an autoscaler. */}}
{{- define "drayage.checkReplicas" -}}
{{- if gt (int .section.minReplicas) (int .section.maxReplicas) -}}
{{- fail (printf "%s.minReplicas is above %s.maxReplicas" .name .name) -}}
{{- end -}}
{{- end }}

{{/* Not empty for a service whose number of replicas an object of `autoscaling.yaml` or `keda.yaml` sets. */}}
{{- define "drayage.isAutoscaled" -}}
{{- $keda := .root.Values.keda -}}
{{- if eq .name "egress-fetcher" -}}
{{- if or ($keda).enabled (.root.Values.autoscaling).enabled -}} true {{- end -}}
{{- else if and ($keda).enabled (hasKey $keda.consumers .name) -}} true {{- end -}}
{{- end }}

{{/* Image, and how it is pulled where the values say so. */}}
{{- define "drayage.containerImage" -}}
image: {{ include "drayage.image" . }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- define "drayage.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Where pods may run, where the values say so. Parentheses: a section whose lines are all comments is null, and Helm removes
its key. */}}
{{- define "drayage.scheduling" -}}
{{- with (.Values.pods).nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (.Values.pods).tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (.Values.pods).affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (.Values.pods).priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Variables of a service: its own, and the addresses of previews and of the forward proxy when they are on. */}}
{{- define "drayage.serviceEnvironment" -}}
{{- $preview := .root.Values.preview -}}
{{- $own := .service.environment -}}
{{- if and ($preview).enabled (eq .name "sandbox-transfer") -}}
{{- $served := dict "DRAY_SANDBOX_TRANSFER__PREVIEW__LISTEN" "0.0.0.0:7350" "DRAY_SANDBOX_TRANSFER__PREVIEW__URL" (printf "https://%s" $preview.host) -}}
{{- $own = merge (dict) $own $served -}}
{{- end -}}
{{- if and (.root.Values.egressProxy).enabled (eq .name "egress-fetcher") -}}
{{- $own = merge (dict) $own (dict "DRAY_EGRESS_FETCHER__PROXY__LISTEN" "0.0.0.0:3128") -}}
{{- end -}}
{{- toYaml $own -}}
{{- end }}
