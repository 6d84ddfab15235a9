#!/bin/busybox sh
# Process 1 of the guest: loads the modules, makes the host's root file system writable by means of
# a layer in memory, brings up Soft-RoCE, runs the job, writes down its exit status, powers off.
#
# The share `run` holds what the host has to say (job, role, out, forward, make-bootable) and takes
# what the guest answers (started, output, status). A guest that powers off without `status` did not get that far; why not
# stands on the console.
/bin/busybox --install -s /bin

give_up() {
    echo "vm: $*"
    poweroff -f
}

share() { # TAG FOLDER OPTIONS
    mkdir -p "$2"
    mount -t 9p -o "trans=virtio,version=9p2000.L,msize=262144,$3" "$1" "$2" ||
        give_up "cannot mount the host's share $1 at $2"
}

mount_root() {
    mount -t tmpfs -o mode=755 tmpfs /mnt
    # The host does not change below a running guest in ways that matter, so caching is safe here.
    share host /mnt/lower ro,cache=loose
    mkdir -p /mnt/upper /mnt/work
    mount -t overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work overlay /newroot ||
        give_up "cannot lay the writable layer over the host's root"
    for folder in proc sys dev; do mount --bind "/$folder" "/newroot/$folder"; done
    mkdir -p /newroot/dev/shm /newroot/dev/pts
    mount -t tmpfs tmpfs /newroot/dev/shm
    mount -t devpts devpts /newroot/dev/pts
    ln -sf /proc/self/fd /dev/fd
    for number in 0:stdin 1:stdout 2:stderr; do
        ln -sf "/proc/self/fd/${number%%:*}" "/dev/${number#*:}"
    done
}

bring_up_network() {
    case "$(cat /mnt/run/role)" in
    a) device=eth0 address=10.8.0.1 gid=0a08:0001 ;;
    b) device=eth0 address=10.8.0.2 gid=0a08:0002 ;;
    *)
        device=dum0 address=10.9.0.1 gid=0a09:0001
        ip link add dum0 type dummy
        ;;
    esac
    ip link set lo up
    # 4200 leaves room for a RoCE path MTU of 4096 and its headers.
    ip link set "$device" mtu 4200 up
    ip addr add "$address/24" dev "$device"
    chroot /newroot /usr/bin/env PATH="$search_path" rdma link add rxe0 type rxe netdev "$device" ||
        give_up "cannot create rxe0 on $device"
    # The kernel fills the table of GIDs a moment after the device appears.
    for _ in $(seq 100); do
        grep -qs "ffff:$gid" /sys/class/infiniband/rxe0/ports/1/gids/* && return
        usleep 50000
    done
    give_up "rxe0 has no GID for $address"
}

# The interface that the host's connections come from is the last one.
open_door() {
    [ -s /mnt/run/forward ] || return 0
    case "$(cat /mnt/run/role)" in a | b) door=eth1 ;; *) door=eth0 ;; esac
    ip addr add 10.0.2.15/24 dev "$door"
    ip link set "$door" up
}

# Gives the machine to systemd, which runs the job and powers off.
hand_over_to_systemd() {
    mkdir -p /newroot/run-of-vm
    mount --bind /mnt/run /newroot/run-of-vm
    chroot /newroot /usr/bin/env PATH="$search_path" /bin/bash "$(cat /mnt/run/make-bootable)" / /run-of-vm ||
        give_up "systemd cannot be prepared"
    exec switch_root /newroot /lib/systemd/systemd
}

run_job() {
    mkfifo /output
    # Through a pipe, so that a job that opens /dev/stdout again does not truncate what it printed.
    cat /output >>/mnt/run/output &
    printer=$!
    echo yes >/mnt/run/started
    chroot /newroot /usr/bin/env -i PATH="$search_path" HOME=/root LANG=C.UTF-8 \
        /bin/bash -c "$(cat /mnt/run/job)" </dev/null >/output 2>&1
    status=$?
    # Whatever the job left in the background may hold the pipe open; that must not hold us.
    for _ in $(seq 40); do
        kill -0 "$printer" 2>/dev/null || break
        usleep 50000
    done
    echo "$status" >/mnt/run/status
}

search_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in $(cat /modules/order); do
    insmod "/modules/$module" || echo "vm: module $module does not load"
done
mount_root
share run /mnt/run cache=none
out=$(cat /mnt/run/out)
[ -z "$out" ] || share out "/newroot$out" cache=none
bring_up_network
open_door
[ ! -s /mnt/run/make-bootable ] || hand_over_to_systemd
run_job
poweroff -f
