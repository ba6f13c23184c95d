//! What capable root is made to try, in Python. Everything that these programs say is a complaint.

/// `succeeds(what, work)` complains when something worked that must not.
pub(super) const PRELUDE: &str = "import os, sys, ctypes, errno, signal, struct, resource, stat, socket\n\
    L = ctypes.CDLL(None, use_errno=True)\n\
    def call(*a):\n\
    \x20ctypes.set_errno(0); r = L.syscall(*[ctypes.c_long(x) if isinstance(x, int) else x for x in a])\n\
    \x20if r < 0: raise OSError(ctypes.get_errno(), 'call')\n\
    \x20return r\n\
    def succeeds(what, work):\n\
    \x20try: work()\n\
    \x20except (OSError, ValueError): return\n\
    \x20print(what)\n\
    def fails(what, work):\n\
    \x20try: work()\n\
    \x20except OSError as e: print(what, e)\n\
    def as_child(work):\n\
    \x20pid = os.fork()\n\
    \x20if pid == 0:\n\
    \x20\x20try: work(); os._exit(0)\n\
    \x20\x20except OSError as e: os._exit(e.errno)\n\
    \x20code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n\
    \x20if code: raise OSError(code, 'child')\n";

/// What package managers do, each of which only capable root can.
pub(super) const WORK: &str = r"
def chown():
    open('/tmp/given', 'w').close(); os.chown('/tmp/given', 1000, 1000)
    assert os.stat('/tmp/given').st_uid == 1000
    os.chown('/tmp/given', 0, 0)
def write_into_a_home():
    with open('/home/user/private', 'a') as f: f.write('from root')
def change_a_mode(): os.chmod('/home/user/private', 0o640)
def become_the_user():
    def work():
        os.setgroups([1000]); os.setresgid(1000, 1000, 1000); os.setresuid(1000, 1000, 1000)
        assert (os.getuid(), os.getgid()) == (1000, 1000)
    as_child(work)
WORK = [chown, write_into_a_home, change_a_mode, become_the_user]
";

/// Everything that might end the agent or take something from it, as capable root. 65535 is its id.
pub(super) const DISTURB: &str = r"
for number in range(1, 65):
    try: os.kill(1, number)
    except (OSError, ValueError): pass
def queue(number, code, pid):
    info = struct.pack('iiiiII', number, 0, code, 0, pid, 0).ljust(128, b'\0')
    call(129, 1, number, info)
for number in (15, 9, 17, 19):
    for code in (-1, -6, -2, 0):
        try: queue(number, code, 0)
        except OSError: pass
as_agent = [
    ('setuid', lambda: call(105, 65535)), ('setreuid', lambda: call(113, 65535, 65535)), ('real', lambda: call(113, 65535, 0)),
    ('setresuid', lambda: call(117, 65535, 65535, 65535)), ('effective', lambda: call(117, 0, 65535, 0)), ('saved', lambda: call(117, 0, 0, 65535)),
]
for name, work in as_agent: succeeds('became the agent by ' + name, lambda: as_child(work))
succeeds('limits of the agent', lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0)))
succeeds('processors of the agent', lambda: os.sched_setaffinity(1, {0}))
succeeds('nice of the agent', lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
succeeds('score of the agent', lambda: open('/proc/1/oom_score_adj', 'w').write('1000'))
def in_its_group():
    os.setgroups([65535]); os.setresgid(65535, 65535, 65535)
    resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))
succeeds('limits of the agent by its group', lambda: as_child(in_its_group))
# Without cgroups a reaper stands above each command.
shell = open('/proc/%d/stat' % os.getppid()).read().rsplit(')', 1)[1].split()
above = int(shell[1])
if above > 1: succeeds('ended the process above the command', lambda: os.kill(above, 9))
";

/// Everything that might show what the agent holds: as root, with all groups, and with its own.
pub(super) const LOOK: &str = r"
def look():
    for name in ('environ', 'maps', 'mem', 'auxv', 'stack', 'syscall', 'io', 'pagemap', 'smaps', 'personality'):
        succeeds('read ' + name, lambda: os.read(os.open('/proc/1/' + name, os.O_RDONLY), 1) or 1 / 0)
    for name in ('root', 'cwd', 'exe', 'ns/mnt', 'ns/user', 'ns/net', 'fd/0', 'fd/3', 'fd/4', 'fd/5', 'fd/6', 'fd/7'):
        succeeds('link ' + name, lambda: os.readlink('/proc/1/' + name))
        succeeds('open ' + name, lambda: os.open('/proc/1/' + name, os.O_RDONLY))
    succeeds('memory of the agent', lambda: os.open('/proc/1/mem', os.O_RDWR))
    succeeds('traced', lambda: call(101, 16, 1, 0, 0))
    succeeds('seized', lambda: call(101, 0x4206, 1, 0, 0))
    if os.path.exists('/proc/1/root/etc'): print('there is a way through /proc/1/root')
    fd = call(434, 1, 0)
    for number in range(12): succeeds('descriptor %d' % number, lambda: call(438, fd, number, 0))
look()
os.setgroups([65535, 0, 5, 1000]); os.setresgid(65535, 65535, 65535)
look()
";

/// What belongs to the host or to all boxes.
pub(super) const OUTSIDE: &str = r"
open('/tmp/f', 'w').close()
for number in (65536, 100000, 2 ** 31 - 1, 2 ** 32 - 2):
    succeeds('chown to %d' % number, lambda: os.chown('/tmp/f', number, 0))
    succeeds('chgrp to %d' % number, lambda: os.chown('/tmp/f', 0, number))
    succeeds('setuid to %d' % number, lambda: as_child(lambda: call(105, number)))
for path in ('/dev/null', '/dev/zero', '/dev/urandom', '/dev/tty'):
    succeeds('chmod ' + path, lambda: os.chmod(path, 0o600))
    succeeds('chown ' + path, lambda: os.chown(path, 1000, 1000))
    succeeds('remove ' + path, lambda: os.remove(path))
for path in ('/dev', '/proc', '/proc/sys', '/proc/1', '/proc/sys/kernel/core_pattern'):
    succeeds('chown ' + path, lambda: os.chown(path, 1000, 1000))
for path in ('/proc/sys/kernel/core_pattern', '/proc/sys/kernel/hostname', '/proc/sys/net/ipv4/ip_forward', '/proc/sys/user/max_user_namespaces',
             '/proc/sysrq-trigger', '/proc/self/uid_map', '/proc/self/gid_map', '/proc/self/setgroups', '/proc/self/oom_score_adj'):
    succeeds('write ' + path, lambda: os.write(os.open(path, os.O_WRONLY), b'1'))
succeeds('mount', lambda: call(165, b'tmpfs', b'/tmp', b'tmpfs', 0, 0))
succeeds('remount', lambda: call(165, b'', b'/proc', b'', 32 | 4096, 0))
succeeds('unmount', lambda: call(166, b'/proc', 2))
succeeds('unshare', lambda: call(272, 0x10000000))
succeeds('chroot', lambda: os.chroot('/tmp'))
for kind in (stat.S_IFCHR, stat.S_IFBLK): succeeds('device', lambda: os.mknod('/tmp/device%d' % kind, kind | 0o600, os.makedev(1, 3)))
succeeds('hostname', lambda: call(170, b'x', 1))
succeeds('raw socket', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
succeeds('limits', lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100000, 100000)))
succeeds('trusted attribute', lambda: os.setxattr('/tmp/f', 'trusted.x', b'1'))
for path in ('/etc/shadow', '/etc/gshadow', '/etc/sudoers'):
    if os.path.exists(path): print(path, 'is there')
def programs():
    for name in os.listdir('/usr/bin'):
        found = os.stat('/usr/bin/' + name)
        if stat.S_ISREG(found.st_mode): yield '/usr/bin/' + name, found
for path, found in list(programs())[:50]:
    if found.st_uid != 65534: continue
    if not found.st_mode & 0o004: succeeds('read ' + path, lambda: open(path, 'rb').read(1))
    succeeds('mode of ' + path, lambda: os.chmod(path, 0o777))
    succeeds('owner of ' + path, lambda: os.chown(path, 0, 0))
";
