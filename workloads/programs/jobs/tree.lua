-- Builds binary trees, walks them, and sorts what is in them: tables, closures, the collector.
local function tree(depth, value)
  if depth == 0 then return { value = value } end
  return { value = value, left = tree(depth - 1, 2 * value), right = tree(depth - 1, 2 * value + 1) }
end

local function each(node, visit)
  if node then
    each(node.left, visit)
    visit(node.value)
    each(node.right, visit)
  end
end

for round = 1, tonumber(arg[1]) do
  local values, sum = {}, 0
  each(tree(12, round), function(value) values[#values + 1] = value * 2654435761 % 1000003 end)
  table.sort(values)
  for place, value in ipairs(values) do sum = (sum + place * value) % 1000000007 end
  print(round, #values, sum, table.concat(values, " ", 1, 3))
end
