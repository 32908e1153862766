#!/bin/bash
# layers.sh WORK: a layer for each image that kubeadm and kind name, as WORK/layers/NAME.tar, from WORK/bin and WORK/root.
set -euo pipefail
work=$1; root=$work/root; layers=$work/layers
mkdir -p "$layers"
folder() { mkdir -p "$layers/$1.d"/{usr/local/bin,tmp,etc}; }
layer() { tar -C "$layers/$1.d" --numeric-owner --owner=0 --group=0 --mtime=@0 --sort=name -cf "$layers/$1.tar" .; rm -rf "$layers/$1.d"; }
for program in kube-apiserver kube-controller-manager kube-scheduler etcd; do
  folder $program; install -m 755 "$work/bin/$program" "$layers/$program.d/usr/local/bin/"; layer $program
done
for program in pause coredns; do
  folder $program; install -m 755 "$work/bin/$program" "$layers/$program.d/$program"; layer $program
done
# What wants a shell and the tools of packet rules: programs of the root file system with their libraries.
tools=$layers/tools.d; folder tools; mkdir -p "$tools/run"; cd "$root"
libraries() { chroot "$root" ldd "/$1" | grep -o '/[^ ]*' | sed 's#^/##' || true; }
merged() { echo "$1" | sed -E 's#^(bin|sbin|lib|lib64)/#usr/\1/#'; }
{ for program in usr/sbin/xtables-nft-multi usr/sbin/nft usr/sbin/conntrack bin/ip bin/sh bin/kmod bin/mkdir bin/rm bin/chmod; do
    echo $program; libraries $program
  done
  find usr/lib/x86_64-linux-gnu/xtables -name '*.so' | while read -r file; do echo "$file"; libraries "$file"; done
} | sort -u | while read -r file; do
  mkdir -p "$tools/$(dirname "$(merged "$file")")"; cp -L "$root/$file" "$tools/$(merged "$file")"
done
for place in bin sbin lib lib64; do mkdir -p "$tools/usr/$place"; ln -sfn "usr/$place" "$tools/$place"; done
for name in ip{,6}tables{,-save,-restore,-nft}; do ln -sf xtables-nft-multi "$tools/usr/sbin/$name"; done
for name in modprobe lsmod; do ln -sf ../bin/kmod "$tools/usr/sbin/$name"; done
chroot "$tools" iptables --version; chroot "$tools" nft --version; chroot "$tools" ip -V
for program in kube-proxy kindnetd; do
  cp -a "$tools" "$layers/$program.d"; install -m 755 "$work/bin/$program" "$layers/$program.d/usr/local/bin/"; layer $program
done
layer tools
