"""How settings of recipes, ``--set`` and options merge."""

from opera.cli.options import collect_values


def test_set_overrides_the_recipe_and_options_override_both(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("method: sp\nk: 0.5\nlr: 0.1\nsteps: 3\n")
    values = collect_values([str(recipe)], ["learning_rate=0.2", "k=0.4"], max_steps=9, method=None)
    assert values == {"method": "sp", "k": 0.4, "learning_rate": 0.2, "max_steps": 9}
    assert collect_values(None, None, method=None) == {}


def test_epochs_or_steps_on_the_command_line_replace_either_of_the_recipe(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    for length in ("steps: 300", "epochs: 3"):
        recipe.write_text(f"{length}\nlr: 0.1\n")
        assert collect_values([str(recipe)], None, epochs=5.0) == {"epochs": 5.0, "learning_rate": 0.1}
        assert collect_values([str(recipe)], ["steps=70"]) == {"max_steps": 70, "learning_rate": 0.1}
    both = collect_values(None, None, epochs=5.0, max_steps=7)
    assert both == {"epochs": 5.0, "max_steps": 7}, "for make_recipe to refuse"
