"""The recipes of kazoo that Monolith used, on one server: kazoo_recipes.py <host:port>.

Two clients: DataWatch and ChildrenWatch, a Lock that passes on, an Election whose
leader leaves, retry over a version conflict, a transaction, and ephemerals that go
with their session. Prints one JSON object a line.
"""

import json
import queue
import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NotEmptyError
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

addr = sys.argv[1]


def say(**what):
    print(json.dumps(what), flush=True)


def raises(error, call, *args, **kw):
    try:
        call(*args, **kw)
    except error:
        return True
    return False


a, b = KazooClient(hosts=addr, timeout=40), KazooClient(hosts=addr, timeout=40)
a.start(timeout=120)
b.start(timeout=120)

# ensure_path, create in all its kinds, set, delete
a.ensure_path("/app/nodes")
seq = [a.create("/app/nodes/n-", b"", sequence=True, ephemeral=True) for _ in range(3)]
path, stat = a.create("/app/data", b"one", include_data=True)
say(
    seq=seq,
    made=[path, stat.version, stat.dataLength],
    again=raises(NodeExistsError, a.create, "/app/data"),
    not_empty=raises(NotEmptyError, a.delete, "/app"),
    bad_version=raises(BadVersionError, a.set, "/app/data", b"x", version=9),
    version=a.set("/app/data", b"two", version=0).version,
    none=a.create("/app/none", None) and a.get("/app/none")[0],
)

# watches of b see what a does
heard = queue.Queue()


@b.DataWatch("/app/data")
def on_data(data, stat):
    heard.put(["data", data and data.decode(), stat and stat.version])


@b.ChildrenWatch("/app/nodes")
def on_children(children):
    heard.put(["children", sorted(children)])


first = [heard.get(timeout=120), heard.get(timeout=120)]
a.set("/app/data", b"three")
changed = heard.get(timeout=120)
a.delete(seq[1])
left = heard.get(timeout=120)
say(first=first, changed=changed, left=left)

# a transaction: all or nothing
t = a.transaction()
t.create("/app/t1", b"x")
t.check("/app/data", 99)
failed = [type(r).__name__ for r in t.commit()]
t = a.transaction()
t.create("/app/t1", b"x")
t.set_data("/app/t1", b"y")
t.delete("/app/none")
done = [r if isinstance(r, (str, bool)) else r.version for r in t.commit()]
say(failed=failed, done=done, t1=a.get("/app/t1")[0].decode())

# Lock: b waits until a lets go, in turn
order = []
lock_a, lock_b = a.Lock("/app/lock", "a"), b.Lock("/app/lock", "b")
lock_a.acquire(timeout=120)
order.append("a")


def second():
    with lock_b:
        order.append("b")


waiter = threading.Thread(target=second)
waiter.start()
retry = KazooRetry(max_tries=-1, delay=0.01, max_delay=0.05)
while len(lock_a.contenders()) < 2:
    pass
contenders = lock_a.contenders()
lock_a.release()
waiter.join(120)
say(order=order, contenders=contenders)

# Election: the second leads when the first one's session ends
led, stop = queue.Queue(), threading.Event()
c = KazooClient(hosts=addr, timeout=40)
c.start(timeout=120)


def lead(name):
    led.put(name)
    stop.wait(120)


elections = [threading.Thread(target=client.Election("/app/election", name).run, args=(lead, name), daemon=True) for client, name in ((c, "c"), (b, "b"))]
elections[0].start()
leaders = [led.get(timeout=120)]
elections[1].start()
while len(b.get_children("/app/election")) < 2:
    pass
c.stop()
leaders.append(led.get(timeout=120))
stop.set()
say(leaders=leaders)

# retry: read, change, write, until nobody was in between
a.create("/app/count", b"0")


def add(client):
    def once():
        data, stat = client.get("/app/count")
        client.set("/app/count", str(int(data) + 1).encode(), version=stat.version)

    for _ in range(20):
        KazooRetry(max_tries=-1, delay=0.001, max_delay=0.01, ignore_expire=False).copy()
        while raises(BadVersionError, once):
            pass


adders = [threading.Thread(target=add, args=(client,)) for client in (a, b)]
for t in adders:
    t.start()
for t in adders:
    t.join(120)
retry(a.get, "/app/count")
say(count=a.get("/app/count")[0].decode())

# ACLs
a.add_auth("digest", "user:secret")
a.create("/app/private", b"p", acl=[make_digest_acl("user", "secret", all=True)])
say(private=a.get("/app/private")[0].decode(), stranger=raises(Exception, b.get, "/app/private"))

# ephemerals go with the session that made them
gone = queue.Queue()
b.exists(seq[0], watch=lambda event: gone.put([event.type, event.path]))
a.stop()
say(gone=gone.get(timeout=120))
b.stop()
a.close()
b.close()
c.close()
