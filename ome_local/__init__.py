"""A Kubernetes cluster on one machine: `ome local` and `ome demo`. The operator's source distribution contains this
package; its container images do not.
"""
