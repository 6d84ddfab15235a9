#!/usr/bin/perl
# Stops one thread of a running process, and no other, as a hang would:
#
#   hold-thread.pl PID NAME     NAME as in /proc/PID/task/*/comm
#
# Prints "held" and stays until the thread is gone. A debugger does the same: seize, interrupt.
# perl is on every Debian; its system calls go by number.
use strict;
use warnings;

my ($process, $name) = @ARGV;
my %ptrace = (x86_64 => 101, aarch64 => 117);
chomp(my $machine = `uname -m`);
my $call = $ptrace{$machine} or die "the number of ptrace is not known on $machine\n";
my ($seize, $interrupt, $every_child) = (0x4206, 0x4207, 0x40000000);

my $thread;
for my $comm (glob "/proc/$process/task/*/comm") {
    open my $file, '<', $comm or next;
    chomp(my $found = <$file> // '');
    ($thread) = $comm =~ m{/task/(\d+)/} if $found eq $name;
}
defined $thread or die "process $process has no thread $name\n";
for my $request ($seize, $interrupt) {
    syscall($call, $request, $thread + 0, 0, 0) == 0 or die "ptrace $request of $thread: $!\n";
}
waitpid($thread, $every_child) == $thread or die "$thread does not stop: $!\n";
$| = 1;
print "held\n";
# A thread that is killed has to be seen off by who holds it, or its process could not go.
1 while waitpid($thread, $every_child) == $thread && !($? == 0 || ($? & 127) == 9);
