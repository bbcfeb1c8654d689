"""The sizes of a GPT model, from its settings."""

from __future__ import annotations

from tvlint.ir.configuration import Unknown
from tvlint.topology.quantity import Settings, Undecided, attempt
from tvlint.topology.stages import MOST_LAYERS
from tvlint.topology.transformer import Experts, Latent, Model

_OTHER_MODELS = {
    "hybrid_layer_pattern": "hybrid models",
    "hybrid_override_pattern": "hybrid models",
    "encoder_num_layers": "models with an encoder",
    "experimental_attention_variant": "experimental attention variants",
    "heterogeneous_layers_config_path": "models whose layers differ",
}


def model(settings: Settings) -> Model:
    """Return the sizes of the model; raises `Undecided` where one is not known, or for models of which parameters are not
    counted.
    """
    for name, what in _OTHER_MODELS.items():
        given = settings.lookup(name)
        if given is not None and not isinstance(given, Unknown):
            raise Undecided(Unknown(f"parameters of {what} are not counted (`{name}`)"))
    layers, hidden = settings.count("num_layers", 1), settings.count("hidden_size", 1)
    for name in _OTHER_MODELS:
        settings.text(name)
    if layers > MOST_LAYERS:
        raise ValueError(f"{layers:,} layers are more than any model has")
    latent = _latent(settings) if settings.flag("multi_latent_attention") else None
    return Model(
        layers=layers,
        hidden=hidden,
        heads=settings.count("num_attention_heads", 1),
        query_groups=settings.count("effective_query_groups", 1),
        head=settings.count("effective_kv_channels", 1) if latent is None else latent.head,
        ffn=settings.count("effective_ffn_hidden_size", 1),
        gated=settings.flag("swiglu") or settings.flag("quick_geglu"),
        vocabulary=_vocabulary(settings),
        tied=not settings.flag("untie_embeddings_and_output_weights"),
        bias=settings.flag("add_bias_linear"),
        query_bias=settings.flag("add_qkv_bias"),
        norm_bias=settings.text("normalization") == "LayerNorm",
        query_norm=settings.flag("qk_layernorm"),
        output_gate=settings.flag("attention_output_gate"),
        positions=_positions(settings),
        extra_layers=_extra(settings),
        latent=latent,
        experts=_experts(settings) if settings.flag("has_experts") else None,
    )


def _vocabulary(settings: Settings) -> int | None:
    padded = attempt(lambda: settings.count("padded_vocabulary", 1))
    return None if isinstance(padded, Unknown) else padded


def _positions(settings: Settings) -> int:
    if settings.text("position_embedding_type") != "learned_absolute" or not settings.flag("add_position_embedding"):
        return 0
    if attempt(lambda: settings.flag("use_rotary_position_embeddings")) is True:
        return 0  # megatron/training/arguments.py:1626 takes it for the type `rope`
    return settings.count("max_position_embeddings", 1)


def _extra(settings: Settings) -> int:
    extra = settings.optional("mtp_num_layers") or 0
    return 1 if extra and settings.flag("mtp_use_repeated_layer") else extra


def _latent(settings: Settings) -> Latent:
    return Latent(
        query_rank=settings.optional("q_lora_rank", 1),
        key_value_rank=settings.count("kv_lora_rank", 1),
        head=settings.count("qk_head_dim", 1),
        positional=settings.count("qk_pos_emb_head_dim"),
        value=settings.count("v_head_dim", 1),
        splits_down=settings.lookup("transformer_impl") == "local",
    )


def _experts(settings: Settings) -> Experts:
    layers = settings.lookup("layers_with_experts")
    if isinstance(layers, Unknown):
        raise Undecided(layers)
    if not isinstance(layers, tuple):
        raise ValueError("which layers have experts is not known")
    shared = settings.optional("moe_shared_expert_intermediate_size") or 0
    return Experts(
        count=settings.count("num_experts", 1),
        ffn=settings.optional("moe_ffn_hidden_size", 1) or settings.count("effective_ffn_hidden_size", 1),
        chosen=settings.count("moe_router_topk", 1),
        layers=tuple(map(bool, layers)),
        shared_ffn=shared,
        shared_gate=bool(shared) and settings.flag("moe_shared_expert_gate"),
        latent=settings.optional("moe_latent_size") or 0,
    )
