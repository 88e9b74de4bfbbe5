// The falling threshold of the readout at each step, for each power of two that a row may be scaled by. The row's shift
// is in the table: moving one threshold is cheaper than shifting the sums of all channels. After the deadline no sum
// reaches a threshold.
module threshold_table #(
    parameter int SUM_BITS = 26,
    parameter int SCALE_BITS = 5,
    parameter int STEP_BITS = 4,
    parameter int WINDOW = 15,
    parameter int LOWEST_SCALE = 14,
    parameter int SCALES = 8,
    parameter     FILE = "thresholds.hex"              // by scale, then step: {on, off}
) (
    input  logic [SCALE_BITS-1:0] scale,
    input  logic [STEP_BITS-1:0]  step,
    output logic [SUM_BITS-1:0]   threshold_on,
    output logic [SUM_BITS-1:0]   threshold_off
);
  localparam int ENTRIES = SCALES * WINDOW;
  localparam int ADDRESS_BITS = $clog2(ENTRIES + 1);
  logic [2*SUM_BITS-1:0] words[ENTRIES];
  logic [ADDRESS_BITS-1:0] address;
  initial $readmemh(FILE, words);
  assign address =
      ADDRESS_BITS'(scale - SCALE_BITS'(LOWEST_SCALE)) * ADDRESS_BITS'(WINDOW) + ADDRESS_BITS'(step);
  assign {threshold_on, threshold_off} = words[address];
endmodule
