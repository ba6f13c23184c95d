import base64, hashlib, http.server, json, socket, struct, threading

GUID = b'258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
go = threading.Event()
silent = []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get('Transfer-Encoding', '').lower() != 'chunked':
            return self.rfile.read(int(self.headers.get('Content-Length') or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b''.join(parts)

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    def seen(self):
        return [[name.lower(), value] for name, value in self.headers.items()]

    def work(self):
        path = self.path.split('?')[0]
        if self.headers.get('Upgrade', '').lower() == 'websocket':
            return self.websocket()
        body = self.body()
        if path == '/stream':
            return self.stream()
        if path == '/go':
            go.set()
        if path == '/rules':
            rules = [('Set-Cookie', 'a=1; Path=/; Domain=example.com; HttpOnly'), ('Location', '/there'),
                     ('Strict-Transport-Security', 'max-age=999'), ('Clear-Site-Data', '"*"'),
                     ('Access-Control-Allow-Origin', '*'), ('Content-Security-Policy', "script-src 'none'"),
                     ('Connection', 'x-hop'), ('X-Hop', '1'), ('X-End', '1'), ('Content-Type', 'text/html')]
            return self.answer(302, rules, b'<script>page()</script>')
        if path == '/missing':
            return self.answer(404, [('Content-Type', 'text/plain')], b'no such thing of mine')
        told = {'method': self.command, 'path': self.path, 'headers': self.seen(), 'bytes': len(body),
                'sha256': hashlib.sha256(body).hexdigest(), 'silent': len(silent)}
        self.answer(200, [('Content-Type', 'application/json')], json.dumps(told).encode())

    def stream(self):
        self.send_response(200)
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        go.clear()
        self.wfile.write(b'5\r\nfirst\r\n')
        self.wfile.flush()
        go.wait(20)
        self.wfile.write(b'6\r\nsecond\r\n0\r\n\r\n')

    def websocket(self):
        key = self.headers['Sec-WebSocket-Key'].encode()
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        self.send_response(101)
        self.send_header('Upgrade', 'websocket')
        self.send_header('Connection', 'Upgrade')
        self.send_header('Sec-WebSocket-Accept', accept)
        offered = self.headers.get('Sec-WebSocket-Protocol')
        if offered:
            self.send_header('Sec-WebSocket-Protocol', offered.split(',')[0].strip())
        self.end_headers()
        self.say(json.dumps({'path': self.path, 'headers': self.seen()}).encode())
        while True:
            opcode, payload = self.hear()
            if opcode == 8:
                self.wfile.write(b'\x88' + bytes([len(payload)]) + payload)
                break
            self.say(b'echo ' + payload)
        self.close_connection = True

    def hear(self):
        head = self.rfile.read(2)
        if len(head) < 2:
            return 8, b''
        length = head[1] & 127
        if length == 126:
            length = struct.unpack('>H', self.rfile.read(2))[0]
        mask = self.rfile.read(4)
        payload = bytes(byte ^ mask[index % 4] for index, byte in enumerate(self.rfile.read(length)))
        return head[0] & 15, payload

    def say(self, payload):
        length = bytes([len(payload)]) if len(payload) < 126 else b'\x7e' + struct.pack('>H', len(payload))
        self.wfile.write(b'\x81' + length + payload)
        self.wfile.flush()

    def __getattr__(self, name):
        if name.startswith('do_'):
            return self.work
        raise AttributeError(name)


def raw(port, work):
    listener = socket.create_server(('127.0.0.1', port), backlog=128)

    def run():
        while True:
            threading.Thread(target=work, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=run).start()


def saying(*parts, repeat=1, keep=False):
    def work(connection):
        try:
            connection.recv(65536)
            for _ in range(repeat):
                for part in parts:
                    connection.sendall(part)
            if keep:
                connection.recv(1)
        except OSError:
            pass
        connection.close()
    return work


def say_nothing(connection):
    connection.recv(65536)
    silent.append(connection)
    connection.recv(1)
    connection.close()


def echo(connection):
    count = 0
    while data := connection.recv(65536):
        count += len(data)
        connection.sendall(data)
    connection.sendall(f'|{count}'.encode())
    connection.close()


def hold(connection):
    connection.recv(1)


raw(8001, echo)
raw(8002, hold)
raw(8101, saying(b'SSH-2.0-server\r\n', keep=True))
raw(8102, saying())
raw(8103, saying(b'HTTP/1.1 200 OK\r\n', b'a: ' + b'b' * 65536 + b'\r\n', repeat=10000))
raw(8104, saying(b'HTTP/1.1 103 Early\r\n\r\n' * 1000, repeat=10000))
raw(8105, saying(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n', keep=True))
raw(8106, saying(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'))
raw(8107, say_nothing)
raw(8108, saying(b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\nnonsense'))
http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Handler).serve_forever()
