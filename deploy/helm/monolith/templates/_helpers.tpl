{{/* The name that everything of a release begins with. */}}
{{- define "monolith.name" -}}
{{- if contains "monolith" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-monolith" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels that select the pods of a component: dict root, component. */}}
{{- define "monolith.selector" -}}
app.kubernetes.io/name: monolith
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "monolith.labels" -}}
{{ include "monolith.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "monolith.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What Pod Security "restricted" asks of a pod, and where it may run. */}}
{{- define "monolith.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
topologySpreadConstraints:
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "monolith.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}

{{- define "monolith.container" -}}
image: {{ include "monolith.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext: {{ include "monolith.confined" . }}
env:
  - name: MONOLITH_NATS
    {{- if .root.Values.nats.urlSecret }}
    valueFrom: {secretKeyRef: {name: {{ .root.Values.nats.urlSecret }}, key: url}}
    {{- else }}
    value: {{ include "monolith.nats" .root | quote }}
    {{- end }}
  {{- if .root.Values.nats.enabled }}
  - {name: MONOLITH_NATS_SYNC, value: always}
  - {name: MONOLITH_LOG_REPLICAS, value: {{ .root.Values.nats.replicas | quote }}}
  {{- end }}
  - {name: MONOLITH_BZID, value: {{ .root.Values.bzid }}}
  - {name: MONOLITH_LOG, value: {{ .root.Values.logLevel }}}
  - name: MY_POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: MY_POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  {{- with .root.Values.otlp.endpoint }}
  - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ . | quote }}}
  - {name: OTEL_RESOURCE_ATTRIBUTES, value: {{ printf "k8s.namespace.name=%s,k8s.pod.name=$(MY_POD_NAME)" $.root.Release.Namespace | quote }}}
  {{- end }}
  {{- with .root.Values.otlp.headersSecret }}
  - name: OTEL_EXPORTER_OTLP_HEADERS
    valueFrom: {secretKeyRef: {name: {{ . }}, key: headers}}
  {{- end }}
  {{- if .indexed }}
  - name: POD_INDEX
    valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
  {{- end }}
{{- end }}

{{- define "monolith.confined" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{/* Our servers by the one name that has all their addresses, or those that are there. */}}
{{- define "monolith.nats" -}}
{{- if .Values.nats.enabled }}nats://{{ include "monolith.name" . }}-nats:4222{{ else }}{{ .Values.nats.url }}{{ end }}
{{- end }}

{{/* Probes of a role on its status port: dict port (a name), ready (path and port). The first minutes
belong to views that fold the log, and to models that are read. */}}
{{- define "monolith.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: {{ .port }}}
  periodSeconds: 2
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /livez, port: {{ .port }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ .ready | default .port }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end }}

{{/* What the schema of the values cannot say. */}}
{{- define "monolith.check" -}}
{{- if hasKey .Values.training "volume" }}
{{- fail "training.volume was one volume of all pods (accessMode ReadWriteMany), and none is shared any more: take it away, and say how large the volume of each shard and trainer is by training.volumes.shard and training.volumes.trainer, with size and storageClass (docs/guides/pods.md says how the old volume's checkpoints get there; helm upgrade --reset-then-reuse-values leaves the old chart's own values out)" }}
{{- end }}
{{- if hasKey .Values.serving "copies" }}
{{- fail "serving.copies was the size of what a pod lost with its node: take it away, and say how large the volume of each serving pod is by serving.volume, with size and storageClass" }}
{{- end }}
{{- if and .Values.otlp.headersSecret (not .Values.otlp.endpoint) }}
{{- fail "otlp.headersSecret is for the collector of otlp.endpoint, which is empty: name one, or leave both empty" }}
{{- end }}
{{- if and (not .Values.nats.enabled) (not .Values.nats.url) (not .Values.nats.urlSecret) }}
{{- fail "nats.enabled is false: name the servers by nats.url, or a Secret with the key url by nats.urlSecret" }}
{{- end }}
{{- if and .Values.nats.enabled (or .Values.nats.url .Values.nats.urlSecret) }}
{{- fail "nats.enabled is true and nats.url or nats.urlSecret names other servers: leave these empty, or set nats.enabled to false" }}
{{- end }}
{{- if and .Values.nats.url (contains "@" .Values.nats.url) }}
{{- fail "nats.url holds credentials, which everybody who may read pods would see: put it into a Secret under the key url and name that by nats.urlSecret" }}
{{- end }}
{{- if and .Values.training.autoscaling.enabled (lt (int .Values.training.autoscaling.maxTrainers) (int .Values.training.trainers)) }}
{{- fail (printf "training.autoscaling.maxTrainers is %d, fewer than training.trainers, %d" (int .Values.training.autoscaling.maxTrainers) (int .Values.training.trainers)) }}
{{- end }}
{{- if and .Values.serving.autoscaling.enabled (lt (int .Values.serving.autoscaling.maxEntries) (int .Values.serving.entries)) }}
{{- fail (printf "serving.autoscaling.maxEntries is %d, fewer than serving.entries, %d" (int .Values.serving.autoscaling.maxEntries) (int .Values.serving.entries)) }}
{{- end }}
{{- end }}

{{- define "monolith.trainingMounts" -}}
- {name: training, mountPath: /training}
- {name: work, mountPath: /work}
- {name: tmp, mountPath: /tmp}
{{- if .Values.training.rowsTLSSecret }}
- {name: rows-tls, mountPath: /rows-tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "monolith.trainingVolumes" -}}
- {name: work, emptyDir: {}}
- {name: tmp, emptyDir: {}}
{{- if .Values.training.rowsTLSSecret }}
- {name: rows-tls, secret: {secretName: {{ .Values.training.rowsTLSSecret }}, defaultMode: 0440}}
{{- end }}
{{- include "monolith.transferVolumes" . }}
{{- end }}

{{/* A pod's own volume, which goes with it from node to node: dict root, component, volume (a name), size, storageClass. */}}
{{- define "monolith.claim" -}}
- metadata:
    name: {{ .volume }}
    labels:
      {{- include "monolith.selector" . | nindent 6 }}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .of.storageClass }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ .of.size }}}}
{{- end }}

{{/* By what both ends of a transfer know each other. */}}
{{- define "monolith.transferArgs" -}}
{{- if .Values.transfers.tlsSecret }}
- --transfer-tls-cert=/transfer-tls/tls.crt
- --transfer-tls-key=/transfer-tls/tls.key
- --transfer-tls-ca=/transfer-tls/ca.crt
{{- else }}
- --insecure-transfer
{{- end }}
{{- end }}

{{- define "monolith.transferMounts" -}}
{{- if .Values.transfers.tlsSecret }}
- {name: transfer-tls, mountPath: /transfer-tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "monolith.transferVolumes" -}}
{{- if .Values.transfers.tlsSecret }}
- {name: transfer-tls, secret: {secretName: {{ .Values.transfers.tlsSecret }}, defaultMode: 0440}}
{{- end }}
{{- end }}

{{/* The model-sync of a pod, which hands out what lies on the pod's volume: dict root, component, service (of the
pods' names), dir (of copies), exports (a folder that is handed out, too; none), volume (name and path), resources. */}}
{{- define "monolith.sync" -}}
- name: model-sync
  {{- include "monolith.container" . | nindent 2 }}
  args:
    - model-sync
    - --status=:9101
    - --insecure-status
    - --snapshot-dir=/work/sync-snapshots
    - --host=$(MY_POD_NAME)
    - --dir={{ .dir }}
    {{- with .exports }}
    - --exports={{ . }}
    {{- end }}
    - --transfer-listen=:8600
    - --transfer-advertise=$(MY_POD_NAME).{{ .service }}.{{ .root.Release.Namespace }}.svc:8600
    {{- include "monolith.transferArgs" .root | nindent 4 }}
  ports:
    - {name: sync-status, containerPort: 9101}
    - {name: transfer, containerPort: 8600}
  {{- include "monolith.probes" (dict "port" "sync-status") | nindent 2 }}
  resources: {{ toJson .resources }}
  volumeMounts:
    - {name: {{ .volume }}, mountPath: /{{ .volume }}}
    - {name: work, mountPath: /work}
    - {name: tmp, mountPath: /tmp}
    {{- include "monolith.transferMounts" .root | nindent 4 }}
{{- end }}

{{/* Ports of servers that are there: those of nats.url, or what NATS listens on where a Secret names them. */}}
{{- define "monolith.natsPorts" -}}
{{- $ports := list -}}
{{- range splitList "," .Values.nats.url }}{{ with regexFind ":[0-9]+$" . }}{{ $ports = append $ports (trimPrefix ":" .) }}{{ end }}{{ end -}}
{{- range $i, $p := $ports | default (list "4222") | uniq }}{{ if $i }}, {{ end }}{port: {{ $p }}, protocol: TCP}{{ end -}}
{{- end }}

{{- define "monolith.kafkaPorts" -}}
{{- $ports := list -}}
{{- range .Values.kafka.brokers }}{{ $ports = append $ports (splitList ":" . | last) }}{{ end -}}
{{- range $i, $p := uniq $ports }}{{ if $i }}, {{ end }}{port: {{ $p }}, protocol: TCP}{{ end -}}
{{- end }}

{{- define "monolith.otlpPort" -}}
{{ .Values.otlp.endpoint | trimSuffix "/" | splitList ":" | last }}
{{- end }}
