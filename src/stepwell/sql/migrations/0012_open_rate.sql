-- stepwell: compatible from 6
-- Deferred: the row of the bucket, which claims of its jobs update, is locked only while the transaction commits.
create or replace function stepwell.open_rate() returns trigger language plpgsql as 'begin return null; end';
create constraint trigger rate_opening after insert or update of spacing on stepwell.key_setting
deferrable initially deferred for each row execute function stepwell.open_rate();
