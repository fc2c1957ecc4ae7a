"""The simulation agrees with Theorem 1, and ``opera-paper theory`` prints both."""

import json

import pytest

import opera
from opera_paper.theory import METHOD_NAMES, SimulationSettings, examine, predict, simulate, static_beats_dynamic


@pytest.mark.parametrize(("noise", "auc"), [(0.2, 0.3), (0.5, 0.5), (0.2, 0.95), (0.5, 0.75)])
def test_it_matches_the_theorem_within_its_standard_error(noise, auc):
    settings = SimulationSettings(noise=noise, auc=auc, k=0.3, v=0.4, documents=300, repeats=100, seed=1)
    closed, simulated = predict(settings), simulate(settings)
    for name in METHOD_NAMES:
        assert simulated[name].similarity == pytest.approx(closed[name].similarity, abs=3 * simulated[name].error)
        assert simulated[name].precision == pytest.approx(closed[name].precision, abs=0.015)
        assert simulated[name].share == pytest.approx(closed[name].share, abs=0.015)
        assert 0 < simulated[name].error < 0.005


def test_the_last_claim_fails_where_the_scores_mislead():
    """Erratum 9: at γ = ρ, SP beats DP only while γ > m⁺/m."""
    for auc, better in ((0.8, "sp"), (0.25, "dp")):
        point = examine(SimulationSettings(auc=auc, k=0.4, v=0.4, repeats=100))
        closed, simulated = point.closed_form, point.simulated
        assert closed["sp"].precision == closed["dp"].precision
        assert simulated["sp"].precision == pytest.approx(simulated["dp"].precision)
        assert static_beats_dynamic(closed["sp"].precision, point.settings.true_share) == (better == "sp")
        for outcome in (closed, simulated):
            other = "dp" if better == "sp" else "sp"
            assert outcome[better].similarity > outcome[other].similarity + 3 * simulated["sp"].error


def test_a_selection_that_keeps_nothing_is_refused():
    with pytest.raises(opera.SettingError, match="must keep at least one pair"):
        simulate(SimulationSettings(documents=10, k=0.05, repeats=20))


def test_the_command_prints_a_table_or_json(run_opera_paper):
    small = ["theory", "--auc", "0.8", "--set", "repeats=20", "--set", "documents=20"]
    table = run_opera_paper(*small, "--noise", "0.3").stdout
    assert {"0.3", "0.8", "0.657", "sp"} <= set(table.split())
    records = json.loads(run_opera_paper(*small, "--json").stdout)["points"]
    assert [record["noise"] for record in records] == [0.1, 0.3, 0.5]
    assert records[1]["closed_form"]["sp"]["precision"] > records[1]["true_share"]


@pytest.mark.parametrize("options", ["--noise 1.5", "--set gamma=1", "--set noise=0.1"])
def test_wrong_settings_are_refused(run_opera_paper, options):
    done = run_opera_paper("theory", *options.split())
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
