#!/bin/bash
# rootfs.sh WORK KIND: the root file system of kind's base image (images/base/Dockerfile of its module) as WORK/root and
# WORK/base-image.tar, from Debian's packages and the programs in WORK/bin.
set -euo pipefail
work=$1; files=$2/images/base/files; root=$work/root
mmdebstrap --variant=minbase \
  --include=systemd,conntrack,iptables,nftables,iproute2,ethtool,util-linux,mount,kmod,libseccomp2,pigz,bash,ca-certificates,curl,jq,procps,runc,containernetworking-plugins \
  bookworm "$work/base.tar"
mkdir -p "$root"; tar -C "$root" -xpf "$work/base.tar"; rm "$work/base.tar"
mkdir -p "$root"/{kind/bin,kind/manifests,LICENSES,etc/containerd,etc/kubernetes/manifests,etc/systemd/system/kubelet.service.d,opt/cni/bin}
install -m 755 "$files/usr/local/bin/entrypoint" "$root/usr/local/bin/entrypoint"
install -m 755 "$files"/kind/bin/* "$root/kind/bin/"
for file in etc/crictl.yaml etc/containerd/config.toml etc/default/kubelet etc/sysctl.d/10-network-{security,magic}.conf \
  etc/systemd/system/{kubelet.slice,undo-mount-hacks.service,containerd.service,kubelet.service} \
  etc/systemd/system/kubelet.service.d/{10-kubeadm,11-kind}.conf; do
  install -D -m 644 "$files/$file" "$root/$file"
done
# As in the Dockerfile: what systemd would start beside the three that a node needs.
find "$root/lib/systemd/system/sysinit.target.wants/" -name systemd-tmpfiles-setup.service -delete
rm -f "$root"/lib/systemd/system/multi-user.target.wants/* "$root"/etc/systemd/system/*.wants/* \
  "$root"/lib/systemd/system/local-fs.target.wants/* \
  "$root"/lib/systemd/system/sockets.target.wants/*udev* "$root"/lib/systemd/system/sockets.target.wants/*initctl* \
  "$root"/lib/systemd/system/basic.target.wants/*
echo "ReadKMsg=no" >> "$root/etc/systemd/journald.conf"
ln -sf /lib/systemd/systemd "$root/sbin/init"
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
for unit in kubelet containerd undo-mount-hacks; do
  ln -sf "/etc/systemd/system/$unit.service" "$root/etc/systemd/system/multi-user.target.wants/$unit.service"
done
ln -sf /dev/null "$root/etc/systemd/system/systemd-binfmt.service"
# Debian's places instead of kind's.
for program in containerd ctr containerd-shim-runc-v2; do
  rm -f "$root/usr/local/bin/$program"; install -m 755 "$work/bin/$program" "$root/usr/local/bin/$program"
done
ln -sf /usr/sbin/runc "$root/usr/local/sbin/runc"
for plugin in host-local loopback ptp portmap; do cp "$root/usr/lib/cni/$plugin" "$root/opt/cni/bin/"; done
# A machine without CAP_SYS_RESOURCE lowers no oom score and raises no limit; kind has this setting for rootless Docker.
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$root/etc/containerd/config.toml"
chroot "$root" ctr oci spec \
  | chroot "$root" jq '.hooks.createContainer[.hooks.createContainer| length] |= . + {"path": "/kind/bin/mount-product-files.sh"} | del(.process.rlimits)' \
  > "$root/etc/containerd/cri-base.json"
rm -rf "$root"/usr/share/{doc,locale,man}/* "$root"/var/cache/apt/*
tar -C "$root" --numeric-owner -cf "$work/base-image.tar" .
