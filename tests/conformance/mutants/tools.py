"""Mutants of the family tools."""

import copy

from hermes_memory_acme import AcmeProvider


class Changed(AcmeProvider):
    """Its one tool has another property."""

    PROPERTY = {}

    def get_tool_schemas(self):
        (schema,) = copy.deepcopy(super().get_tool_schemas())
        schema["parameters"]["properties"]["more"] = self.PROPERTY
        return [schema]


class HP501(Changed):
    PROPERTY = {"type": "nonsense"}


class HP502(Changed):
    PROPERTY = {"type": "array"}


class HP503(AcmeProvider):
    def get_tool_schemas(self):
        return [{"type": "function", "function": each} for each in super().get_tool_schemas()]


class HP504(AcmeProvider):
    def get_tool_schemas(self):
        return super().get_tool_schemas() * 2


class HP505(AcmeProvider):
    def handle_tool_call(self, tool_name, args, **kwargs):
        if tool_name == "acme_search" and set(args) == {"query"}:
            return "nothing found"
        return super().handle_tool_call(tool_name, args, **kwargs)


class HP506(AcmeProvider):
    def handle_tool_call(self, tool_name, args, **kwargs):
        if args.get("limit") is not None:
            args = {**args, "limit": int(args["limit"])}
        return super().handle_tool_call(tool_name, args, **kwargs)


class HP507(AcmeProvider):
    def handle_tool_call(self, tool_name, args, **kwargs):
        if len(str(args)) > 100_000:
            raise ValueError("too long")
        return super().handle_tool_call(tool_name, args, **kwargs)


class HP508(AcmeProvider):
    def handle_tool_call(self, tool_name, args, **kwargs):
        {"acme_search": 1}[tool_name]
        return super().handle_tool_call(tool_name, args, **kwargs)


class HP509(AcmeProvider):
    def get_tool_schemas(self):
        return [] if self._store is None else super().get_tool_schemas()
