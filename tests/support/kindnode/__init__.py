"""Docker and kind's node image for tests, made here: from Go modules and Debian packages, without a registry of images.

The node image is kind's own (`kind build node-image`), of the same Kubernetes as `ome local`. It differs from the
published image in runc and CNI plugins, which are Debian's; crictl and the storage provisioner are left out; and kindnetd,
whose module is in no registry, is a stand-in without network policies.
"""
