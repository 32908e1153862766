"""Docker and kind's node image for tests. They are built from Go modules and Debian packages, without an image registry.

The node image is kind's own (`kind build node-image`), with the same Kubernetes as `ome local`. It differs from the
published image: runc and the CNI plugins are Debian's, crictl and the storage provisioner are left out, and kindnetd, whose
module is in no registry, is replaced by a stand-in without network policies.
"""
