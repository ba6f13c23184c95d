"""A server with the tools, prompts and resources that the conformance suite of the protocol asks for, made with the official Python package.

It speaks over standard input and output, with a handshake or without, whichever way it is spoken with first. With `--http PORT` it
speaks streamable HTTP instead: what the suite says of it then is what nobody can be held to who stands between.
"""

import hashlib
import hmac
import os
import sys

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
KEY = os.urandom(32)
STATIC = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched resource content"},
}


def text(value):
    return {"content": [{"type": "text", "text": value}]}


def resource(uri, kind, value):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": value}}


def form(message, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def sampling(prompt):
    messages = [{"role": "user", "content": {"type": "text", "text": prompt}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}}


ROOTS = {"method": "roots/list", "params": {}}
STRING = {"type": "string"}


def needs(requests, state=None):
    result = {"resultType": "input_required", "inputRequests": requests}
    return {**result, "requestState": seal(state)} if state else result


def seal(state):
    return state + "." + hmac.new(KEY, state.encode(), hashlib.sha256).hexdigest()


def unseal(sealed):
    state = (sealed or "").rpartition(".")[0]
    if not hmac.compare_digest(seal(state), sealed or ""):
        raise MCPError(types.INVALID_PARAMS, "requestState was changed on its way")
    return state


def brought(params, name):
    """What the client brought under a name, as a dictionary; nothing if it brought none, or something else."""
    value = (params.input_responses or {}).get(name)
    value = value.model_dump(by_alias=True, exclude_none=True) if hasattr(value, "model_dump") else value
    return value if isinstance(value, dict) else None


async def simple(context, params):
    return text("This is a simple text response for testing.")


async def image(context, params):
    return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}


async def audio(context, params):
    return {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}


async def embedded(context, params):
    return {"content": [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]}


async def mixed(context, params):
    kinds = [
        {"type": "text", "text": "Multiple content types test:"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ]
    return {"content": kinds}


async def logging(context, params):
    for line in ["Tool execution started", "Tool processing data", "Tool execution completed"]:
        await context.session.send_log_message("info", line, related_request_id=context.request_id)
        await anyio.sleep(0.05)
    return text("logged")


async def failing(context, params):
    return {**text("This tool intentionally returns an error for testing"), "isError": True}


async def progress(context, params):
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100)
        await anyio.sleep(0.05)
    return text("done")



async def sample(context, params):
    prompt = (params.arguments or {}).get("prompt", "")
    content = types.TextContent(type="text", text=prompt)
    message = types.SamplingMessage(role="user", content=content)
    told = await context.session.create_message([message], max_tokens=100, related_request_id=context.request_id)
    return text(f"LLM response: {told.content.text}")


async def elicited(context, message, schema, said):
    told = await context.session.elicit_form(message, schema, context.request_id)
    return text(f"{said}: action={told.action}, content={told.content}")


async def elicit(context, params):
    message = (params.arguments or {}).get("message", "")
    schema = {"type": "object", "properties": {"response": STRING}, "required": ["response"]}
    return await elicited(context, message, schema, "User response")


async def defaults(context, params):
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await elicited(context, "All have defaults", {"type": "object", "properties": properties}, "Elicitation completed")


async def enums(context, params):
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
    properties = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await elicited(context, "Choose", {"type": "object", "properties": properties}, "Elicitation completed")


async def name_needed(context, params):
    told = brought(params, "user_name")
    if not told or "name" not in (told.get("content") or {}):
        return needs({"user_name": form("What is your name?", name=STRING)})
    return text(f"Hello, {told['content']['name']}!")


async def sample_needed(context, params):
    told = brought(params, "capital_question")
    return text(str(told)) if told else needs({"capital_question": sampling("What is the capital of France?")})


async def roots_needed(context, params):
    told = brought(params, "client_roots")
    return text(str(told)) if told else needs({"client_roots": ROOTS})


async def confirm(context, params):
    if params.request_state is None:
        return needs({"confirm": form("Please confirm", ok={"type": "boolean"})}, "confirming")
    return text(f"state-ok: {unseal(params.request_state)}")


async def many_needed(context, params):
    requests = {
        "user_name": form("What is your name?", name=STRING),
        "greeting": sampling("Generate a greeting"),
        "client_roots": ROOTS,
    }
    told = [brought(params, name) for name in requests]
    return text(str(told)) if all(told) and unseal(params.request_state) else needs(requests, "many")


async def rounds(context, params):
    state = unseal(params.request_state) if params.request_state else ""
    if not state:
        return needs({"step1": form("Step 1: What is your name?", name=STRING)}, "1")
    if state == "1":
        return needs({"step2": form("Step 2: What is your favorite color?", color=STRING)}, "2")
    return text("all steps are done")


async def capable(context, params):
    offers = context.session.client_capabilities
    requests = {}
    if offers and offers.sampling is not None:
        requests["sample"] = sampling("Say something")
    if offers and offers.elicitation is not None:
        requests["form"] = form("Say something", word=STRING)
    return needs(requests) if requests else text("nothing can be asked")


async def sampling_only(context, params):
    offers = context.session.client_capabilities
    if not offers or offers.sampling is None:
        required = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(-32021, "this tool needs a client that offers sampling", required)
    return text("sampling is offered")


async def echo_header(context, params):
    return text(str(params.arguments))


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": STRING, "city": STRING},
        }
    },
    "properties": {
        "name": STRING,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": STRING,
        "email": STRING,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}}
HEADER = {"type": "object", "properties": {"region": {**STRING, "x-mcp-header": "Region"}}}
TOOLS = {
    "test_simple_text": (simple, NOTHING),
    "test_image_content": (image, NOTHING),
    "test_audio_content": (audio, NOTHING),
    "test_embedded_resource": (embedded, NOTHING),
    "test_multiple_content_types": (mixed, NOTHING),
    "test_tool_with_logging": (logging, NOTHING),
    "test_logging_tool": (logging, NOTHING),
    "test_error_handling": (failing, NOTHING),
    "test_tool_with_progress": (progress, NOTHING),
    "test_sampling": (sample, {"type": "object", "properties": {"prompt": STRING}, "required": ["prompt"]}),
    "test_elicitation": (elicit, {"type": "object", "properties": {"message": STRING}, "required": ["message"]}),
    "test_elicitation_sep1034_defaults": (defaults, NOTHING),
    "test_elicitation_sep1330_enums": (enums, NOTHING),
    "json_schema_2020_12_tool": (simple, SCHEMA),
    "test_input_required_result_elicitation": (name_needed, NOTHING),
    "test_streaming_elicitation": (name_needed, NOTHING),
    "test_input_required_result_sampling": (sample_needed, NOTHING),
    "test_input_required_result_list_roots": (roots_needed, NOTHING),
    "test_input_required_result_request_state": (confirm, NOTHING),
    "test_input_required_result_tampered_state": (confirm, NOTHING),
    "test_input_required_result_multiple_inputs": (many_needed, NOTHING),
    "test_input_required_result_multi_round": (rounds, NOTHING),
    "test_input_required_result_capabilities": (capable, NOTHING),
    "test_missing_capability": (sampling_only, NOTHING),
    "test_custom_header": (echo_header, HEADER),
}
PROMPTS = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


async def list_tools(context, params):
    return {"tools": [{"name": name, "description": name, "inputSchema": schema} for name, (_, schema) in TOOLS.items()]}


async def call_tool(context, params):
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name}")
    return await TOOLS[params.name][0](context, params)


async def list_resources(context, params):
    return {"resources": [{"uri": uri, "name": uri, "mimeType": told["mimeType"]} for uri, told in STATIC.items()]}


async def list_templates(context, params):
    template = {"uriTemplate": "test://template/{id}/data", "name": "Template", "mimeType": "application/json"}
    return {"resourceTemplates": [template]}


async def read_resource(context, params):
    uri = str(params.uri)
    if uri in STATIC:
        return {"contents": [{"uri": uri, **STATIC[uri]}]}
    if uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.removeprefix("test://template/").removesuffix("/data")
        said = f'{{"id":"{number}","templateTest":true,"data":"Data for ID: {number}"}}'
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": said}]}
    raise MCPError(types.INVALID_PARAMS, "there is no such resource", {"uri": uri})


async def nothing(context, params):
    return {}


async def list_prompts(context, params):
    arguments = lambda names: [{"name": name, "description": name, "required": True} for name in names]
    return {"prompts": [{"name": n, "description": n, "arguments": arguments(a)} for n, a in PROMPTS.items()]}


async def get_prompt(context, params):
    given = params.arguments or {}
    said = lambda content: {"role": "user", "content": content}
    line = lambda value: said({"type": "text", "text": value})
    if params.name == "test_simple_prompt":
        return {"messages": [line("This is a simple prompt for testing.")]}
    if params.name == "test_prompt_with_arguments":
        return {"messages": [line(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")]}
    if params.name == "test_prompt_with_embedded_resource":
        shown = resource(given.get("resourceUri"), "text/plain", "Embedded resource content for testing.")
        return {"messages": [said(shown), line("Please process the embedded resource above.")]}
    if params.name == "test_prompt_with_image":
        shown = {"type": "image", "data": PNG, "mimeType": "image/png"}
        return {"messages": [said(shown), line("Please analyze the image above.")]}
    if params.name == "test_input_required_result_prompt":
        told = brought(params, "user_context")
        context_needed = form("What context should the prompt use?", context=STRING)
        return {"messages": [line(str(told))]} if told else needs({"user_context": context_needed})
    raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name}")


async def complete(context, params):
    return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}}


def whole(handler, hints=None):
    """Results as the newest version has them; older ones get what they know of that."""

    async def handle(context, params):
        return {"resultType": "complete", **(hints or {}), **await handler(context, params)}

    return handle


CACHED = {"ttlMs": 1000, "cacheScope": "private"}
server = Server(
    "conformance",
    version="1.0.0",
    on_list_tools=whole(list_tools, CACHED),
    on_call_tool=whole(call_tool),
    on_list_resources=whole(list_resources, CACHED),
    on_list_resource_templates=whole(list_templates, CACHED),
    on_read_resource=whole(read_resource, CACHED),
    on_subscribe_resource=nothing,
    on_unsubscribe_resource=nothing,
    on_list_prompts=whole(list_prompts, CACHED),
    on_get_prompt=whole(get_prompt),
    on_completion=whole(complete),
    on_set_logging_level=nothing,
)


async def over_streams():
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    if "--http" in sys.argv:
        import uvicorn

        port = int(sys.argv[sys.argv.index("--http") + 1])
        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="warning")
    else:
        anyio.run(over_streams)
