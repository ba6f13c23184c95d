//! Clients of the socket of `sudo` that do not keep to its rules, in Python. Everything that these programs say is a complaint.

/// Whether anything listens.
pub(super) const CONNECT: &str = r"
import socket
try: socket.socket(socket.AF_UNIX).connect(b'\0strongbox-sudo'); print('there')
except ConnectionRefusedError: print('refused')
";

/// A client in pieces. `refused` complains when an answer is not a refusal.
pub(super) const PRELUDE: &str = r"
import array, os, signal, socket, struct, sys, time
def connect():
    s = socket.socket(socket.AF_UNIX); s.connect(b'\0strongbox-sudo'); return s
def nonce(s):
    told = b''
    while len(told) < 17: told += s.recv(17 - len(told)) or sys.exit('no nonce: %r' % told)
    return told[1:]
def body(*words, uid=0):
    return struct.pack('<4I', uid, 0, 0, len(words)) + b'\0'.join((b'/', words[0]) + words) + b'\0'
TOUCH = body(b'/bin/touch', b'/tmp/started')
def ask(s, begin, body=TOUCH, streams=(0, 1, 2), length=None):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', streams))] if streams else []
    s.sendmsg([begin + struct.pack('<I', len(body) if length is None else length)], rights)
    try: s.sendall(body)
    except (BrokenPipeError, ConnectionResetError): pass
def answer(s):
    told = b''
    try:
        while True:
            more = s.recv(4096)
            if not more: return told
            told += more
    except ConnectionResetError: return told
def refused(what, s):
    told = answer(s)
    if told[:1] not in (b'F', b''): print(what, told)
    if os.path.exists('/tmp/started'): print(what, 'was started')
def in_child(work):
    pid = os.fork()
    if pid == 0:
        try: work()
        finally: os._exit(0)
    os.waitpid(pid, 0)
";

/// Requests that must be refused, and one that must not.
pub(super) const REFUSED: &str = r"
s = connect(); nonce(s); ask(s, b'x' * 16); refused('another nonce', s)
s = connect(); first = nonce(s); t = connect(); nonce(t); ask(t, first); refused('the nonce of another connection', t)
s = connect(); n = nonce(s); in_child(lambda: ask(s, n)); refused('another process asks', s)
# The one that connected is gone, and a child of its asks in its place.
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    s = connect(); n = nonce(s)
    if os.fork() == 0:
        while os.getppid() != 1: time.sleep(0.01)
        ask(s, n); refused('the one that connected is gone', s)
        os.write(writer, b'x')
    os._exit(0)
os.waitpid(pid, 0); os.read(reader, 1)
for count in (0, 1, 2, 4, 60):
    s = connect(); ask(s, nonce(s), streams=(0, 1, 2, *[0] * 60)[:count]); refused('%d streams' % count, s)
for length in (0, 3, 2 ** 21, 2 ** 32 - 1):
    s = connect(); ask(s, nonce(s), length=length); refused('a length of %d' % length, s)
for uid in (65535, 2 ** 32 - 1):
    s = connect(); ask(s, nonce(s), body(b'/bin/touch', b'/tmp/started', uid=uid)); refused('user %d' % uid, s)
for damaged in (b'', b'\0' * 16, TOUCH[:-1], TOUCH[:16], struct.pack('<4I', 0, 0, 0, 9) + TOUCH[16:], b'\xff' * 100000):
    s = connect(); ask(s, nonce(s), damaged); refused('damaged %r' % damaged[:40], s)
s = connect(); n = nonce(s); s.sendmsg([n[:5]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', (0, 1, 2)))])
try: s.send(n[5:])
except (BrokenPipeError, ConnectionResetError): pass # half of it was refused already
refused('half a nonce', s)
s = connect(); ask(s, nonce(s), body(b'/bin/true'))
told = answer(s)
if told != b'C\0': print('a good request', told)
";

/// Starts more than fit into a box of 40 processes.
pub(super) const CROWD: &str = r"
import subprocess
started = []
for number in range(40):
    try: started.append(subprocess.Popen(['sudo', 'sleep', '30'], stderr=subprocess.DEVNULL))
    except OSError: break
time.sleep(1)
count = sum(name.isdigit() for name in os.listdir('/proc'))
if count > 42: print(count, 'processes')
for one in started: one.kill()
for one in started: one.wait()
";

/// Holds half requests until there is a file, and then connects and hangs up at once, many times.
pub(super) const HOLD: &str = r"
held = []
for number in range(40):
    s = connect(); held.append(s)
    if number % 2: s.send(nonce(s)[:number % 16])
    elif number % 4: ask(s, nonce(s), TOUCH[:20], length=len(TOUCH))
open('/tmp/held', 'w').close()
while not os.path.exists('/tmp/enough'): time.sleep(0.02)
for s in held: s.close()
for number in range(200): connect().close()
if os.path.exists('/tmp/started'): print('half a request was started')
";

/// Sends sockets whose last close waits for an hour, because no process reads what was written to them.
pub(super) const LINGER: &str = r"
listener = socket.socket(); listener.bind(('127.0.0.1', 0)); listener.listen(8)
taken = []
def stuck():
    s = socket.socket(); s.connect(listener.getsockname()); taken.append(listener.accept()[0])
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 3600))
    s.setblocking(False)
    try:
        while True: s.send(b'x' * 65536)
    except BlockingIOError: pass
    return s
def send(what):
    def work():
        s, t = connect(), stuck()
        what(s, t.fileno())
        # The last close of this process must not wait for it: a process that ends does not linger.
        os._exit(0)
    in_child(work)
send(lambda s, t: ask(s, nonce(s), streams=(t, t, t), length=9))
send(lambda s, t: ask(s, b'y' * 16, streams=(t, t, t)))
send(lambda s, t: ask(s, nonce(s), streams=(t, 1, 2), body=body(b'/bin/true')))
";
