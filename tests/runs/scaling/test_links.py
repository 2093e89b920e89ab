"""Another link: how it is spelled, what it makes of a network, and what is no link."""

from typing import Any

import pytest

from dtbench.base.errors import PredictionError
from dtbench.runs.scaling.links import LINKS, Cluster, fit_to_world, put_on_cluster, read_link
from dtbench.scenario.schema.network import EmulatedNetwork, RealNetwork
from tests.runs.conftest import LINK


def emulated(**fields: Any) -> EmulatedNetwork:
    return EmulatedNetwork.model_validate({**LINK, **fields})


def put(
    network: EmulatedNetwork, link: str | None = None, between: str | None = None, nodes_of: int | None = None
) -> Any:
    read = [None if text is None else read_link(text) for text in (link, between)]
    return put_on_cluster(network, Cluster(read[0], read[1], nodes_of))


@pytest.mark.parametrize(
    ("text", "latency_us", "bandwidth"),
    [
        ("x2", 6_000.0, 0.2097152),
        ("x0.5", 24_000.0, 0.0524288),
        ("latency=5us", 5.0, 0.1048576),
        ("bandwidth=50GB/s", 12_000.0, 50.0),
        ("latency=2ms, bandwidth=400Gb/s", 2_000.0, 50.0),
        ("bandwidth=500MB/s,latency=500ns", 0.5, 0.5),
        ("nvlink4", 3.4, 450.0),
        ("400G", 14.0, 50.0),
    ],
)
def test_a_link_is_changed_as_it_is_spelled(text: str, latency_us: float, bandwidth: float) -> None:
    network = put(emulated(algorithm="tree", lanes="shared"), text)
    assert network.latency_us == pytest.approx(latency_us)
    assert network.bandwidth_gb_per_s == pytest.approx(bandwidth)
    assert (network.algorithm, network.lanes, network.between_nodes) == ("tree", "shared", None)


@pytest.mark.parametrize(
    "text",
    ["fast", "x", "x0", "x-1", "latency=5", "latency=5GB/s", "bandwidth=5us", "latency=1us,latency=2us", "", "2"],
)
def test_what_is_no_link_is_a_sentence(text: str) -> None:
    with pytest.raises(PredictionError, match="is no link; say `x2`") as error:
        read_link(text)
    assert "nvlink4" in str(error.value)


def test_without_bandwidth_nothing_ends() -> None:
    with pytest.raises(PredictionError, match="nothing ends"):
        read_link("bandwidth=0GB/s")


def test_two_tiers_are_those_of_the_schema() -> None:
    network = put(emulated(), "nvlink4", "400G", 8)
    assert network.bandwidth_gb_per_s == 450.0
    assert network.between_nodes.model_dump() == {"ranks_per_node": 8, "latency_us": 14.0, "bandwidth_gb_per_s": 50.0}
    twice = put(network, "x2")
    assert twice.between_nodes.bandwidth_gb_per_s == 100.0  # every collective takes half as long
    assert twice.between_nodes.latency_us == 7.0
    one = put(network, "x2", "bandwidth=1GB/s", 4)
    assert one.between_nodes.model_dump() == {"ranks_per_node": 4, "latency_us": 14.0, "bandwidth_gb_per_s": 1.0}
    assert put(network, nodes_of=16).between_nodes.ranks_per_node == 16
    assert put(emulated(), nodes_of=16).between_nodes is None  # of the host alone


def test_ranks_that_fit_on_one_node_cross_to_none() -> None:
    network = put(emulated(), None, "400G", 8)
    assert fit_to_world(network, 8).between_nodes is None  # type: ignore[union-attr]
    assert fit_to_world(network, 16) == network


def test_what_does_not_say_all_is_refused() -> None:
    with pytest.raises(PredictionError, match="--between 400G needs --nodes-of K"):
        put(emulated(), None, "400G")
    with pytest.raises(PredictionError, match="changes the link between nodes, of which no cost is known"):
        put(emulated(), None, "x2", 8)
    real = RealNetwork(kind="real")
    with pytest.raises(PredictionError, match=r"changes network\.kind=real, of which no cost is known: say both"):
        put_on_cluster(real, Cluster(read_link("x2")))
    assert put_on_cluster(real, Cluster()) == real
    made = put_on_cluster(real, Cluster(read_link("400G")))
    assert isinstance(made, EmulatedNetwork)
    assert (made.bandwidth_gb_per_s, made.latency_us, made.algorithm) == (50.0, 14.0, "ring")


def test_published_links_say_where_and_are_of_one_direction() -> None:
    """GB/s of both directions, or Gb/s of one, as the sources have them."""
    for name, one in LINKS.items():
        if name.startswith("nvlink"):
            figure = one.source.rpartition(": ")[2]
            both = float(figure.split()[0]) * (1000 if "TB/s" in figure else 1)
            assert one.bandwidth_gb_per_s == both / 2
            assert figure.endswith("both ways")
        else:
            assert one.bandwidth_gb_per_s == float(name.removesuffix("G")) / 8
            assert name.removesuffix("G") in one.source
    assert Cluster(read_link("400G"), read_link("x2"), 4).published == (f"400G: {LINKS['400G'].source}",)
