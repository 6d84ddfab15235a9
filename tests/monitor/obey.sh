# In a machine of rdma.sh: does what the host says, one order after the other, until it says `end`.
#   obey.sh FOLDER MACHINE     orders are FOLDER/MACHINE-1, MACHINE-2, …; the answer to one has `.said`
#                              after its name, and then its status in a file with `.done`
folder=$1 machine=$2 turn=1
cd "$folder" || exit
while :; do
    order=$folder/$machine-$turn
    until test -e "$order"; do sleep 0.1; done
    [[ $(<"$order") != end ]] || exit 0
    # What it leaves in the background is this machine's, and its variables are its own.
    bash "$order" >"$order.said" 2>&1 </dev/null
    echo $? >"$order.status"
    mv "$order.status" "$order.done"
    turn=$((turn + 1))
done
