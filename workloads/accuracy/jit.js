// A program that a JIT compiler turns into machine code as it runs: integers, doubles, arrays.
function work(rounds) {
  const table = new Int32Array(1024);
  const weights = new Float64Array(1024);
  let hash = 1;
  for (let i = 0; i < rounds; i++) {
    hash = (Math.imul(hash, 1664525) + 1013904223) | 0;
    const at = (hash >>> 22) & 1023;
    table[at] += i ^ hash;
    if (table[at] & 1) weights[at] += 0.5;
  }
  return table[7] + weights[9];
}
console.log(work(Number(process.argv[2] || 1e6)));
