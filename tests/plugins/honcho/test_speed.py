"""What the plugin itself costs, with a server that answers at once."""

import time

import pytest


@pytest.mark.stress
def test_a_turn_costs_less_than_five_milliseconds(agent):
    one = agent()
    one.say("warm")
    seconds = []
    for _ in range(40):
        began = time.perf_counter()
        one.say("My dog is called Rex.", "A good name.")
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.005  # what else the machine does is not meant
