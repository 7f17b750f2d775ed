"""The names and addresses of clusters: no two may meet, none may be one that the system refuses."""

from __future__ import annotations

import ipaddress
import itertools

import pytest

from cluster import network
from cluster.errors import ClusterError
from cluster.layout import INDEXES, Layout


def subnets(layout: Layout) -> list[ipaddress.IPv4Network]:
    names = (layout.node_subnet, layout.pod_subnet, layout.service_subnet)
    return [ipaddress.IPv4Network(name) for name in names]


def test_given_all_indexes_when_their_subnets_are_compared_then_none_overlap():
    every = [subnet for index in INDEXES for subnet in subnets(Layout("t", index))]
    assert not [pair for pair in itertools.combinations(every, 2) if pair[0].overlaps(pair[1])]


@pytest.mark.parametrize("index", INDEXES)
def test_given_an_index_when_addresses_are_named_then_each_lies_in_its_subnet(index: int):
    layout = Layout("t", index)
    node, pods, services = subnets(layout)
    assert {ipaddress.ip_address(layout.node_ip), ipaddress.ip_address(layout.host_ip)} < set(node)
    assert ipaddress.ip_address(layout.dns_ip) in services
    assert ipaddress.ip_address(layout.api_service_ip) == services[1]
    assert ipaddress.IPv4Network(layout.node_pod_subnet).subnet_of(pods)


@pytest.mark.parametrize("name", ["", "UPPER", "has-dash", "../etc", "a b", "elevenchars", "1st"])
def test_given_a_name_that_no_interface_can_have_when_named_then_it_is_refused(name: str):
    with pytest.raises(ClusterError, match="choose another --name"):
        Layout(name)


def test_given_the_longest_name_when_the_interface_is_named_then_the_kernel_takes_it():
    assert len(Layout("abcdefghij").veth) <= 15


@pytest.mark.parametrize("index", [-1, 6])
def test_given_an_index_without_subnets_when_named_then_it_is_refused(index: int):
    with pytest.raises(ClusterError, match=r"need 0\.\.5"):
        Layout("t", index)


@pytest.mark.parametrize(
    ("route", "taken"),
    [
        ({"dst": "10.240.0.0/16", "dev": "veth-other"}, True),
        ({"dst": "10.90.3.4", "dev": "tun0"}, True),
        ({"dst": "10.240.0.0/16", "dev": "veth-t"}, False),
        ({"dst": "10.0.0.0/8", "dev": "tun0"}, False),
        ({"dst": "10.241.0.0/16", "dev": "veth-other"}, False),
        ({"dst": "default", "dev": "eth0"}, False),
    ],
)
def test_given_a_route_of_another_device_when_inside_our_subnets_then_it_is_found(
    route: dict[str, str], taken: bool
):
    assert bool(network.overlapping([route], Layout("t", 0))) is taken
