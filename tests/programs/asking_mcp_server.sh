# An MCP server of protocol version 2025-11-25 on standard input and output, which asks the user during a call. Tests of
# dray-tool-mcp and dray-orchestrator run it with `sh -c`.
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *'"tools/list"'*) result='{"tools":[{"name":"pay","inputSchema":{"type":"object"}}]}';;
    *'"tools/call"'*) called=$id
      printf '{"jsonrpc":"2.0","id":900,"method":"elicitation/create","params":{"message":"Really?","requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}}}\n'
      continue;;
    *'"action":"accept"'*) id=$called; result='{"content":[{"type":"text","text":"paid"}]}';;
    *'"action":"decline"'*) id=$called; result='{"content":[{"type":"text","text":"declined"}]}';;
    *'"action"'*) id=$called; result='{"content":[{"type":"text","text":"not paid"}]}';;
    *'"server/discover"'*)
      printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}\n' "$id"
      continue;;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
