"""Settings of a training reach a model's layers."""

from __future__ import annotations

import small

from maskpolicy.models.attention_and_dropout import set_dropout


def test_dropout_is_set_for_the_training_and_not_in_the_configuration():
    model = small.bart(dropout=0.3)
    set_dropout(model, None)
    assert model.model.encoder.dropout == 0.3
    set_dropout(model, 0.1)
    layer = model.model.decoder.layers[0]
    found = [model.model.encoder.dropout, layer.dropout, layer.activation_dropout]
    assert [*found, layer.self_attn.dropout] == [0.1] * 4
    assert model.config.dropout == 0.3
