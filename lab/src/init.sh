#!/bin/sh
# The guest's first process: sets up what programs expect, runs /lab/command, reports, powers off.
# @MARK@ is replaced by a word that the host has chosen for this boot, @OUTPUT@ by the serial line
# that the command's output goes to, @CONSOLE@ by the one that the kernel writes to.
# The kernel has booted: what goes wrong from here on is reported by the host.
[ -f /lab/interactive ] || echo "@MARK@ begin"
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
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root USER=root LC_ALL=C.UTF-8
cd /root || exit
if [ -f /lab/interactive ]; then
    echo "A guest of the lab, as root: exit or Ctrl-A X ends it."
    TERM=vt100 setsid cttyhack sh -l
    poweroff -f
fi
export TERM=dumb
# Raw: what the programs print reaches the host byte by byte.
exec 3<>/dev/@OUTPUT@
stty raw -echo <&3
# A session of its own and a pipe, so that no program believes that it has a terminal.
mkfifo /run/output
cat /run/output >&3 &
reader=$!
setsid sh /lab/command </dev/null >/run/output 2>&1 3>&-
status=$?
# What the command leaves behind would hold the pipe open. Kernel threads take no signal.
for process in /proc/[0-9]*; do
    case ${process#/proc/} in 1 | "$reader") ;; *) kill -9 "${process#/proc/}" 2>/dev/null ;; esac
done
wait "$reader"
printf '\n@MARK@ end %s\n' "$status" >&3
# The host has all that it needs and kills the guest; this is for the case that it does not.
poweroff -f
