// Sums to first spikes: at each step every sum is compared with a threshold that falls with time. The ON neuron fires
// when its sum reaches the threshold, the OFF neuron when its sum is below the mirrored one; each fires once.
module readout #(
    parameter int CHANNELS = 64,
    parameter int SUM_BITS = 26,
    parameter bit IS_SIGNED = 1
) (
    input  logic                         clk,
    input  logic                         start,
    input  logic                         fire,
    input  logic [SUM_BITS-1:0]          threshold_on,
    input  logic [SUM_BITS-1:0]          threshold_off,
    input  logic [CHANNELS*SUM_BITS-1:0] sums,
    output logic [CHANNELS-1:0]          spikes_on,
    output logic [CHANNELS-1:0]          spikes_off
);
  logic [CHANNELS-1:0] fired_on, fired_off, reached, below;
  always_comb
    for (int c = 0; c < CHANNELS; c++) begin
      reached[c] = $signed(sums[c*SUM_BITS +: SUM_BITS]) >= $signed(threshold_on);
      below[c] = IS_SIGNED && $signed(sums[c*SUM_BITS +: SUM_BITS]) < $signed(threshold_off);
    end
  always_ff @(posedge clk)
    if (start) begin
      {fired_on, fired_off, spikes_on, spikes_off} <= '0;
    end else if (fire) begin
      spikes_on <= reached & ~fired_on;
      spikes_off <= below & ~fired_off;
      fired_on <= fired_on | reached;
      fired_off <= fired_off | below;
    end else begin
      {spikes_on, spikes_off} <= '0;
    end
endmodule
