-- The size limits.
create or replace view stepwell.size_limits as
select l.name, l.bytes from stepwell.size_limit l;

comment on view stepwell.size_limits is 'The size limits, in bytes; changed by "stepwell sizes set".';
