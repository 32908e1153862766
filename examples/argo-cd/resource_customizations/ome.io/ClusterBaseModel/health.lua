-- Health of the kinds of ome.io and sglang.ai in Argo CD. What is broken, refused or waiting is never Healthy, and what
-- serves is never Degraded.
local held = { Paused = true, Frozen = true, Observed = true, ScaledToZero = true, Disabled = true, Incomplete = true }
local status = obj.status or {}
local found = {}
for _, condition in ipairs(status.conditions or {}) do
  found[condition.type] = condition
end
local main = found.Ready or found.Complete
if main == nil or status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "no operator has processed the last edit yet" }
end
local serves = main.status == "True"
if found.Stalled ~= nil and found.Stalled.status == "True" then
  return { status = serves and "Suspended" or "Degraded", message = found.Stalled.message }
end
if found.Reconciling ~= nil and found.Reconciling.status == "True" then
  local health = "Progressing"
  if held[found.Reconciling.reason] then
    health = "Suspended"
  elseif found.Reconciling.reason == "ProgressDeadlineExceeded" and not serves then
    health = "Degraded"
  end
  return { status = health, message = found.Reconciling.message }
end
if serves then
  return { status = "Healthy", message = main.message }
end
return { status = held[main.reason] and "Suspended" or "Progressing", message = main.message }
