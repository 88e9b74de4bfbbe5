// The membrane of a unit affinity after each distance: exponent, and the upper bits of the mantissa. The lower bits of
// the 32-bit mantissa are never read, because an affinity is shifted right by at least 32 - AFFINITY_BITS.
module leak_table #(
    parameter int DISTANCE_BITS = 11,
    parameter int DISTANCES = 1921,
    parameter int MANTISSA_BITS = 16,
    parameter int EXPONENT_BITS = 8,
    parameter     FILE = "leak.hex"                    // one line per distance: {exponent, mantissa}
) (
    input  logic [DISTANCE_BITS-1:0] distance,
    output logic [MANTISSA_BITS-1:0] mantissa,
    output logic [EXPONENT_BITS-1:0] exponent          // one more than the exponent of docs/format.md, which starts at -1
);
  logic [EXPONENT_BITS+MANTISSA_BITS-1:0] words[DISTANCES];
  initial $readmemh(FILE, words);
  assign {exponent, mantissa} = words[distance];
endmodule
