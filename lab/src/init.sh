#!/bin/sh
# The guest's first process: sets up what programs expect, runs /lab/command, reports, powers off.
# @MARK@ is replaced by a word that the host has chosen for this boot.
/bin/busybox --install -s
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /run /tmp /var/tmp /sys/fs/cgroup
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs -o mode=1777 tmp /var/tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
ip link set lo up
hostname guest
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root USER=root LC_ALL=C.UTF-8 TERM=dumb
cd /root
# Raw lines: what the programs print reaches the host byte by byte.
stty -onlcr -echo </dev/console
echo "@MARK@ begin"
if [ -f /lab/interactive ]; then
    setsid -c sh -c 'exec sh -l </dev/console >/dev/console 2>&1'
    status=$?
else
    # Through a pipe, so that no program believes that it has a terminal.
    { sh /lab/command </dev/null 2>&1; echo $? >/run/lab-status; } | cat
    status=$(cat /run/lab-status)
fi
echo
echo "@MARK@ end $status"
sync
poweroff -f
