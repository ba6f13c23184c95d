#!/bin/sh
# First program of the guest: finds the real root inside this initramfs, mounts it and hands over.
set -eu
bb=/bin/busybox
$bb mkdir -p /dev
$bb mount -t devtmpfs dev /dev
for module in /modules/*; do
    $bb insmod "$module"
done
$bb losetup /dev/loop0 /root.ext4
$bb mount -t ext4 /dev/loop0 /root
$bb umount /dev
exec $bb switch_root /root /usr/sbin/boot
