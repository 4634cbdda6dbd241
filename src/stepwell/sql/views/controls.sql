-- The pauses and stops.
create or replace view stepwell.controls as
select c.action, c.scope, c.name, c.asked_at from stepwell.control c;

comment on view stepwell.controls is 'Pauses in force and stops that were requested.';
