import json, os, sys
requests = open(os.dup(0), "rb")
program = compile(json.loads(requests.readline()), "<strongbox>", "exec")
exec(program, {"__name__": "strongbox", "requests": requests, "nonce": sys.argv[-1]})
