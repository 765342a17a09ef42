"""An agent that knows only a ZooKeeper ensemble: kazoo_agent.py <host:port>.

Registers as Monolith's agents do, watches, locks and is elected, a step for each line of
its input, and at last dies without a word. Prints one JSON object a line.
"""

import json
import os
import queue
import sys
import threading

from kazoo.client import KazooClient

META = {
    "address": "10.0.0.1:4003",
    "address_ipv6": "[::]:4003",
    "stat": 30,
    "model_name": None,
    "server_type": None,
    "task": -1,
    "replica": -1,
    "archon_address": "10.0.0.1:4001",
    "archon_address_ipv6": "[::]:4001",
}
NODE = "/test/service/m1/ps:1/7"


def say(**what):
    print(json.dumps(what), flush=True)


def told():
    return sys.stdin.readline().strip()


zk = KazooClient(hosts=sys.argv[1], timeout=15)
zk.start(timeout=120)
zk.create(NODE, json.dumps(META).encode(), ephemeral=True, makepath=True)
zk.create(
    "/test/resource/1:7",
    json.dumps({"address": "10.0.0.1", "memory": 1 << 30, "cpu": 8.0}).encode(),
    ephemeral=True,
    makepath=True,
)
zk.create("/test/kazoo/config", b"one", makepath=True)

heard = queue.Queue()


@zk.DataWatch("/test/kazoo/config")
def on_data(data, stat):
    heard.put({"data": data and data.decode()})


@zk.ChildrenWatch("/test/kazoo")
def on_children(children):
    heard.put({"children": sorted(children)})


first = [heard.get(timeout=120), heard.get(timeout=120)]
say(session=zk.client_id[0], first=first)

# what is written at the other side comes as a watch
said = {}
while said != {"data": "two", "children": ["config", "job"]}:
    said.update(heard.get(timeout=120))
say(**said)

assert told() == "unload"
META["stat"] = 40
zk.set(NODE, json.dumps(META).encode())

assert told() == "lock"
lock = zk.Lock("/test/kazoo/job", "kazoo's")
assert lock.acquire(timeout=120)
say(locked=lock.contenders())
assert told() == "release"
lock.release()

assert told() == "elect"
leads = threading.Event()


def lead():
    say(leads=True)
    leads.wait()


elected = threading.Thread(target=zk.Election("/test/kazoo/election", "kazoo's").run, args=(lead,))
elected.start()
assert told() == "resign"
leads.set()
elected.join()
say(resigned=True)

assert told() == "die"
os._exit(9)
