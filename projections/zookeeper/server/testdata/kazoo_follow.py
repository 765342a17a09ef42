"""Follows one node and its parent with kazoo: kazoo_follow.py <host:port> <path>.

Prints one JSON object a line: first what get, get_children, exists and get_acls say,
then what DataWatch and ChildrenWatch hear, until the node is gone and its siblings are
none.
"""

import json
import queue
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

addr, path = sys.argv[1:]
parent = path.rsplit("/", 1)[0]


def say(**what):
    print(json.dumps(what), flush=True)


def refused(call, *args):
    try:
        call(*args)
    except NoNodeError:
        return True
    return False


zk = KazooClient(hosts=addr, timeout=40)
zk.start(timeout=120)
data, stat = zk.get(path)
say(
    data=data.decode(),
    children=zk.get_children(parent),
    with_stat=zk.get_children(parent, include_data=True)[1].numChildren,
    version=stat.version,
    czxid=stat.czxid,
    length=stat.dataLength,
    exists=zk.exists(path) == stat,
    nothing=zk.exists(path + "x") is None,
    no_node=refused(zk.get, path + "x") and refused(zk.get_children, path + "x"),
    acl=zk.get_acls(path)[0][0].acl_list,
)

heard = queue.Queue()


@zk.DataWatch(path)
def on_data(data, stat, event):
    heard.put({"data": data and data.decode(), "version": stat and stat.version, "event": event and event.type})


@zk.ChildrenWatch(parent)
def on_children(children):
    heard.put({"children": children})


gone = {"data": False, "children": False}
while not all(gone.values()):
    news = heard.get(timeout=120)
    say(**news)
    if "data" in news:
        gone["data"] = news["data"] is None
    else:
        gone["children"] = news["children"] == []
zk.stop()
zk.close()
say(done=True)
